/*
 * One tenant's worker in a hand-over of memory: handover SOCKET TAG. Commands are letters on
 * standard input, each answered by one on standard output: `+` done, `!` memory holds bytes that
 * are neither zero nor this tenant's, or not what it wrote where it says so, `-` it failed, with a
 * line on standard error. All bytes are looked at. A broker that is away is waited for.
 *
 *   t  takes a lease of HANDOVER_BYTES, looks at it, and writes to it
 *   c  compares what it has with what it wrote
 *   r  gives it back
 *   k  keeps it until it is asked back, and gives it back then
 *   a  makes an arena of as many bytes, looks at its pages, and writes to them; they stay pinned
 *   u  unpins them
 *   f  frees them
 *   v  wants them back, and compares them
 *   x  frees the arena
 *   m  makes a segment of as many bytes, looks at it, and writes to it; from here on `c` and `r`
 *      are about it
 *   s  seals it
 *   o  opens it
 *   p  changes a byte of it, behind its seal
 *   d  removes it
 *   w  writes to whatever it has, over and over, until it is killed; it answers once it has begun
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/gmb.h"
#include "kernels/pattern.h"
#include "tests/integration/handover.h"

#define CHUNK_BYTES HARNESS_CHUNK
#define LEASE_BYTES HANDOVER_BYTES
#define PAGE_BYTES UINT64_C(65536) /* of arenas; and so much is looked at in one go */
#define PAGES (LEASE_BYTES / PAGE_BYTES)
#define WORDS (PAGE_BYTES / sizeof(uint64_t))
#define WAIT_NS UINT64_C(60000000000)

/* As cuMemSetAccess() has them. */
struct access_description {
    int type, id, flags;
};
#define PLACE_DEVICE 1
#define ACCESS_READ_WRITE 3

struct worker {
    gmb_session *session;
    uint64_t chunk_bytes; /* of leases: 0 where they are whole */
    gmb_lease *lease;     /* or the part in a segment */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool asked; /* for the lease, under `mutex` */
    gmb_arena *arena;
    uint32_t pages[PAGES];
    uint64_t tag, round; /* of the pattern's seed: whose, and when written */
    int (*set_current)(void *context);
    int (*to_device)(uint64_t to, const void *from, size_t bytes);
    int (*to_host)(void *to, uint64_t from, size_t bytes);
    int (*set_access)(
        uint64_t at, size_t bytes, const struct access_description *what, size_t count);
};

static const char segment_name[] = "weights";

static void find(const struct worker *worker, const char *name, void *ret_function)
{
    void *symbol = gmb_driver_symbol(worker->session, name);

    memcpy(ret_function, &symbol, sizeof(symbol));
}

/*
 * What this tenant wrote last, of one chunk: all chunks hold the same, since one may come back at
 * another place of a lease.
 */
static uint64_t written[CHUNK_BYTES / sizeof(uint64_t)];

static void pattern_renew(const struct worker *worker)
{
    for (size_t i = 0; i < ARRAY_SIZE(written); i++)
        written[i] = pattern_word(worker->tag << 32 | worker->round, i);
}

/* All there is zero, or was written by this tenant at some time. */
static int place_check(const struct worker *worker, uint64_t address, uint64_t offset)
{
    static const uint64_t zeros[WORDS];
    uint64_t words[WORDS], first = offset % CHUNK_BYTES / sizeof(uint64_t);

    if (worker->to_host(words, address, sizeof(words)) != 0)
        return '-';
    if (memcmp(words, zeros, sizeof(words)) == 0)
        return '+';
    for (size_t i = 0; i < WORDS; i++) {
        if (words[i] != 0 && pattern_seed(words[i], first + i) >> 32 != worker->tag)
            return '!';
    }
    return '+';
}

static int place_write(const struct worker *worker, uint64_t address, uint64_t offset)
{
    const uint64_t *words = written + offset % CHUNK_BYTES / sizeof(uint64_t);

    return worker->to_device(address, words, PAGE_BYTES) == 0 ? '+' : '-';
}

/* It holds what was written last. */
static int place_compare(const struct worker *worker, uint64_t address, uint64_t offset)
{
    uint64_t words[WORDS];

    if (worker->to_host(words, address, sizeof(words)) != 0)
        return '-';
    return memcmp(words, written + offset % CHUNK_BYTES / sizeof(uint64_t), sizeof(words)) == 0
               ? '+'
               : '!';
}

typedef int place_fn(const struct worker *worker, uint64_t address, uint64_t offset);

/* Does it with all of what it has, be that a lease, a segment or pages. */
static int places(const struct worker *worker, place_fn *place)
{
    void *context =
        worker->arena != NULL ? gmb_arena_context(worker->arena) : gmb_lease_context(worker->lease);
    uint64_t address =
        worker->arena != NULL ? gmb_arena_address(worker->arena) : gmb_lease_address(worker->lease);
    int answer = worker->set_current(context) == 0 ? '+' : '-';

    for (size_t i = 0; answer == '+' && i < PAGES; i++) {
        uint64_t offset = worker->arena != NULL ? worker->pages[i] * PAGE_BYTES : i * PAGE_BYTES;

        answer = place(worker, address + offset, offset);
    }
    return answer;
}

/* Looks at all of it before it writes to any. */
static int places_fill(const struct worker *worker)
{
    int answer = places(worker, place_check);

    pattern_renew(worker);
    return answer == '+' ? places(worker, place_write) : answer;
}

static int take(struct worker *worker)
{
    struct gmb_lease_params params = {.size = sizeof(params),
        .bytes = LEASE_BYTES,
        .chunk_bytes = worker->chunk_bytes,
        .wait_ns = WAIT_NS};
    int r;

    (void) pthread_mutex_lock(&worker->mutex);
    worker->asked = false;
    (void) pthread_mutex_unlock(&worker->mutex);
    /* A slab that went with its process before it was opened here is asked for again. */
    do {
        r = gmb_lease_new(worker->session, &params, &worker->lease);
    } while (r == GMB_E_GPU && worker->chunk_bytes == 0);
    return r < 0 ? '-' : places_fill(worker);
}

/* A broker that is away just now hears of it later. */
static int give_back(struct worker *worker)
{
    int r = gmb_lease_release(worker->lease);

    worker->lease = NULL;
    return r < 0 && r != GMB_E_DISCONNECTED ? '-' : '+';
}

static struct gmb_segment_params segment_params(const struct worker *worker)
{
    return (struct gmb_segment_params){.size = sizeof(struct gmb_segment_params),
        .name = segment_name,
        .bytes = LEASE_BYTES,
        .chunk_bytes = worker->chunk_bytes,
        .wait_ns = WAIT_NS};
}

static int segment_make(struct worker *worker)
{
    const struct gmb_segment_params params = segment_params(worker);

    if (gmb_segment_create(worker->session, &params, &worker->lease) < 0 ||
        gmb_segment_writable(worker->lease) == 0)
        return '-';
    return places_fill(worker);
}

/* Its mapping is for reading until it changes its mind. */
static int segment_poke(const struct worker *worker)
{
    const struct access_description all = {PLACE_DEVICE, 0, ACCESS_READ_WRITE};
    uint64_t at = gmb_lease_address(worker->lease), word = 0; /* which is nobody's byte */

    if (worker->set_current(gmb_lease_context(worker->lease)) != 0 ||
        worker->set_access(at, LEASE_BYTES, &all, 1) != 0)
        return '-';
    return worker->to_device(at, &word, sizeof(word)) == 0 ? '+' : '-';
}

static void on_revoke(void *user, gmb_lease *lease, uint64_t bytes, uint64_t until_ns)
{
    struct worker *worker = user;

    (void) lease, (void) bytes, (void) until_ns;
    (void) pthread_mutex_lock(&worker->mutex);
    worker->asked = true;
    (void) pthread_cond_signal(&worker->changed);
    (void) pthread_mutex_unlock(&worker->mutex);
}

static int keep(struct worker *worker)
{
    struct timespec until;
    int r = 0;

    (void) clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t) (WAIT_NS / 1000000000);
    (void) pthread_mutex_lock(&worker->mutex);
    while (!worker->asked && r == 0)
        r = pthread_cond_timedwait(&worker->changed, &worker->mutex, &until);
    worker->asked = false;
    (void) pthread_mutex_unlock(&worker->mutex);
    return r == 0 ? give_back(worker) : '-';
}

static int arena_make(struct worker *worker)
{
    struct gmb_arena_params params = {.size = sizeof(params),
        .page_bytes = PAGE_BYTES,
        .max_bytes = LEASE_BYTES,
        .chunk_bytes = CHUNK_BYTES,
        .prefetch_bytes = 1};

    if (gmb_arena_new(worker->session, &params, &worker->arena) < 0 ||
        gmb_page_alloc(worker->arena, PAGES, worker->pages, WAIT_NS) < 0 ||
        gmb_page_pin(worker->arena, PAGES, worker->pages) != GMB_PIN_READY)
        return '-';
    return places_fill(worker);
}

static int arena_compare(const struct worker *worker)
{
    int pinned = gmb_page_pin(worker->arena, PAGES, worker->pages), answer;

    if ((pinned != GMB_PIN_READY && pinned != GMB_PIN_WAITING) ||
        gmb_page_wait(worker->arena, PAGES, worker->pages, WAIT_NS) != GMB_PIN_READY)
        return '-';
    answer = places(worker, place_compare);
    return gmb_page_unpin(worker->arena, PAGES, worker->pages) < 0 ? '-' : answer;
}

static int arena_free(struct worker *worker)
{
    gmb_arena *arena = worker->arena;

    worker->arena = NULL;
    return gmb_arena_free(arena) < 0 ? '-' : '+';
}

/* Until it is killed, in whatever instruction. */
static int write_on(struct worker *worker)
{
    if (places(worker, place_write) != '+' || write(STDOUT_FILENO, "+", 1) != 1)
        return '-';
    for (;;) {
        worker->round++;
        pattern_renew(worker);
        (void) places(worker, place_write);
    }
}

static int done(int result)
{
    return result < 0 ? '-' : '+';
}

static int obey_pages(struct worker *worker, char command)
{
    switch (command) {
    case 'a':
        return arena_make(worker);
    case 'u':
        return done(gmb_page_unpin(worker->arena, PAGES, worker->pages));
    case 'f':
        return done(gmb_page_unref(worker->arena, PAGES, worker->pages));
    case 'v':
        return arena_compare(worker);
    case 'x':
        return arena_free(worker);
    default:
        return '-';
    }
}

static int obey_segment(struct worker *worker, char command)
{
    const struct gmb_segment_params params = segment_params(worker);

    switch (command) {
    case 'm':
        return segment_make(worker);
    case 's':
        return done(gmb_segment_seal(worker->lease, WAIT_NS));
    case 'o':
        return done(gmb_segment_open(worker->session, &params, &worker->lease));
    case 'p':
        return segment_poke(worker);
    case 'd':
        return done(gmb_segment_remove(worker->session, &params));
    default:
        return obey_pages(worker, command);
    }
}

static int obey(struct worker *worker, char command)
{
    worker->round += command == 't' || command == 'a' || command == 'm';
    switch (command) {
    case 't':
        return take(worker);
    case 'c':
        return places(worker, place_compare);
    case 'r':
        return give_back(worker);
    case 'k':
        return keep(worker);
    case 'w':
        return write_on(worker);
    default:
        return obey_segment(worker, command);
    }
}

int main(int argc, char **argv)
{
    struct gmb_options options = {.size = sizeof(options), .offline = GMB_OFFLINE_WAIT};
    struct gmb_device_info info = {.size = sizeof(info)};
    struct worker worker = {
        .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    char command;

    if (argc != 3)
        return 2;
    options.socket = argv[1];
    worker.tag = strtoul(argv[2], NULL, 10);
    if (gmb_connect(&options, &worker.session) < 0 || gmb_thread_start(worker.session) < 0 ||
        gmb_revoke_subscribe(worker.session, on_revoke, &worker) < 0 ||
        gmb_device_get(worker.session, 0, &info) < 0) {
        (void) fprintf(stderr, "handover: %s\n", gmb_error_text());
        return 1;
    }
    worker.chunk_bytes = info.whole_leases != 0 ? 0 : CHUNK_BYTES;
    find(&worker, "cuCtxSetCurrent", &worker.set_current);
    find(&worker, "cuMemcpyHtoD_v2", &worker.to_device);
    find(&worker, "cuMemcpyDtoH_v2", &worker.to_host);
    find(&worker, "cuMemSetAccess", &worker.set_access);
    while (read(STDIN_FILENO, &command, 1) == 1) {
        char answer = (char) obey(&worker, command);

        if (answer == '-')
            (void) fprintf(stderr, "handover: %c: %s\n", command, gmb_error_text());
        if (write(STDOUT_FILENO, &answer, 1) != 1)
            return 1;
    }
    gmb_disconnect(worker.session);
    return 0;
}
