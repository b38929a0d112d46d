/* The command line. docs/man/gmb-replay.1 explains it to people. */
#pragma once

#include "base/limits.h"
#include "base/macro.h"

/* Each is a process with a device context and a connection. */
#define OPTIONS_WORKERS_MAX 1024u
#define OPTIONS_TENANTS_MAX 256u
#define OPTIONS_PRIORITIES_MAX 16u

struct priorities {
    size_t count;
    uint32_t values[OPTIONS_PRIORITIES_MAX];
};

struct options {
    const char *trace;   /* NULL: the generator */
    const char *config;  /* NULL: one is made up */
    const char *json;    /* NULL: none; "-": standard output */
    const char *socket;  /* NULL: a broker of our own */
    const char *policy;  /* not NULL: no broker, a prefix cache with that eviction policy */
    const char *control; /* NULL: `control.sock` beside the socket */
    uint32_t tenants;    /* 0: as many as `names` has, or all of the configuration */
    uint32_t workers;    /* for each tenant */
    uint64_t kv_bytes_per_token;
    double prefill_rate, decode_rate;
    double speed;            /* 0: choose */
    uint64_t scale;          /* 0: choose */
    uint64_t limit;          /* 0: all requests */
    uint64_t weights;        /* of each tenant's model, shared by its workers; 0: none */
    uint64_t device_memory;  /* 0: choose */
    uint32_t device_percent; /* of what the trace needs; 0: choose */
    uint32_t load_percent;   /* the trace's need, of the device; 0: choose */
    bool arena;              /* requests keep their KV in pages of one arena of each worker */
    double think;            /* with an arena: seconds until a finished request is read again */
    struct priorities priorities;         /* of tenants; none: choose */
    struct priorities request_priorities; /* none: all alike */
    uint32_t batch;     /* with an arena: requests of a worker that run at once; 0: the default */
    const char *ladder; /* of the tenants made up: NULL or "none", "default", or a file */
    uint64_t blocks;    /* of the prefix cache */
    bool bound;         /* of the clairvoyant, too */
    uint64_t seed;
    uint64_t wait_ns; /* how long a request may wait for memory, in this run's time */
    size_t name_count;
    char (*names)[LIMIT_NAME_BYTES + 1]; /* owned */
};

enum options_outcome {
    OPTIONS_OK = 0,
    OPTIONS_HELP = 1,
    OPTIONS_VERSION = 2,
    OPTIONS_WRONG = 3, /* said on standard error */
};

/* Strings of `ret` point into argv. An outcome, or -ENOMEM. */
int options_parse(int argc, char *const argv[], struct options *ret) _must_check_;
void options_free(struct options *options);

/* What `--help` prints. */
extern const char options_usage[];
