/*
 * One tenant's worker in a hand-over of memory: handover SOCKET TAG. Commands are letters on
 * standard input, each answered by one on standard output: `+` done, `!` memory holds bytes that
 * are neither zero nor this tenant's, `-` it failed, with a line on standard error.
 *
 *   t  takes a lease of LEASE_BYTES, looks at it, and writes to it
 *   r  gives it back
 *   k  keeps it until it is asked back, and gives it back then
 *   a  makes an arena of as many bytes, looks at its pages, writes to them, and unpins them
 *   v  wants the pages back, compares them, and frees the arena
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/gmb.h"
#include "kernels/pattern.h"

#define MIB (UINT64_C(1) << 20)
#define CHUNK_BYTES (2 * MIB)
#define LEASE_BYTES (10 * MIB)
/* Where the simulator's fresh memory would hold garbage too, and a page of the arena begins. */
#define STEP_BYTES UINT64_C(65536)
#define STEPS (LEASE_BYTES / STEP_BYTES)
#define WORDS 8
#define WAIT_NS UINT64_C(60000000000)

struct worker {
    gmb_session *session;
    uint64_t chunk_bytes; /* of leases: 0 where they are whole */
    gmb_lease *lease;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool asked; /* for the lease, under `mutex` */
    gmb_arena *arena;
    uint32_t pages[STEPS];
    uint64_t tag, round; /* of the pattern's seed: whose, and when written */
    int (*set_current)(void *context);
    int (*to_device)(uint64_t to, const void *from, size_t bytes);
    int (*to_host)(void *to, uint64_t from, size_t bytes);
};

static void find(const struct worker *worker, const char *name, void *ret_function)
{
    void *symbol = gmb_driver_symbol(worker->session, name);

    memcpy(ret_function, &symbol, sizeof(symbol));
}

/* A chunk may come back at another place of a lease, so that words are numbered within it. */
static uint64_t word_number(uint64_t offset, size_t word)
{
    return offset % CHUNK_BYTES / sizeof(uint64_t) + word;
}

static int place_check(const struct worker *worker, uint64_t address, uint64_t offset)
{
    uint64_t words[WORDS];

    if (worker->to_host(words, address, sizeof(words)) != 0)
        return '-';
    for (size_t i = 0; i < WORDS; i++) {
        if (words[i] != 0 && pattern_seed(words[i], word_number(offset, i)) >> 32 != worker->tag)
            return '!';
    }
    return '+';
}

static int place_write(const struct worker *worker, uint64_t address, uint64_t offset)
{
    uint64_t words[WORDS], seed = worker->tag << 32 | worker->round;

    for (size_t i = 0; i < WORDS; i++)
        words[i] = pattern_word(seed, word_number(offset, i));
    return worker->to_device(address, words, sizeof(words)) == 0 ? '+' : '-';
}

static int take(struct worker *worker)
{
    struct gmb_lease_params params = {.size = sizeof(params),
        .bytes = LEASE_BYTES,
        .chunk_bytes = worker->chunk_bytes,
        .wait_ns = WAIT_NS};
    int answer = '+';

    if (gmb_lease_new(worker->session, &params, &worker->lease) < 0 ||
        worker->set_current(gmb_lease_context(worker->lease)) != 0)
        return '-';
    for (uint64_t at = 0; answer == '+' && at < LEASE_BYTES; at += STEP_BYTES) {
        answer = place_check(worker, gmb_lease_address(worker->lease) + at, at);
        if (answer == '+')
            answer = place_write(worker, gmb_lease_address(worker->lease) + at, at);
    }
    return answer;
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
    return r == 0 && gmb_lease_release(worker->lease) == 0 ? '+' : '-';
}

static uint64_t page_address(const struct worker *worker, size_t i)
{
    return gmb_arena_address(worker->arena) + worker->pages[i] * STEP_BYTES;
}

static int fill_arena(struct worker *worker)
{
    struct gmb_arena_params params = {.size = sizeof(params),
        .page_bytes = STEP_BYTES,
        .max_bytes = LEASE_BYTES,
        .chunk_bytes = CHUNK_BYTES,
        .prefetch_bytes = 1};
    int answer = '+';

    if (gmb_arena_new(worker->session, &params, &worker->arena) < 0 ||
        worker->set_current(gmb_arena_context(worker->arena)) != 0 ||
        gmb_page_alloc(worker->arena, STEPS, worker->pages, WAIT_NS) < 0 ||
        gmb_page_pin(worker->arena, STEPS, worker->pages) != GMB_PIN_READY)
        return '-';
    for (size_t i = 0; answer == '+' && i < STEPS; i++) {
        uint64_t offset = worker->pages[i] * STEP_BYTES;

        answer = place_check(worker, page_address(worker, i), offset);
        if (answer == '+')
            answer = place_write(worker, page_address(worker, i), offset);
    }
    return gmb_page_unpin(worker->arena, STEPS, worker->pages) < 0 ? '-' : answer;
}

static int verify_arena(struct worker *worker)
{
    uint64_t words[WORDS], seed = worker->tag << 32 | worker->round;
    int pinned = gmb_page_pin(worker->arena, STEPS, worker->pages);

    if ((pinned != GMB_PIN_READY && pinned != GMB_PIN_WAITING) ||
        gmb_page_wait(worker->arena, STEPS, worker->pages, WAIT_NS) != GMB_PIN_READY)
        return '-';
    for (size_t i = 0; i < STEPS; i++) {
        uint64_t offset = worker->pages[i] * STEP_BYTES;

        if (worker->to_host(words, page_address(worker, i), sizeof(words)) != 0)
            return '-';
        for (size_t k = 0; k < WORDS; k++) {
            if (words[k] != pattern_word(seed, word_number(offset, k)))
                return '!';
        }
    }
    (void) gmb_page_unpin(worker->arena, STEPS, worker->pages);
    return gmb_arena_free(worker->arena) < 0 ? '-' : '+';
}

static int obey(struct worker *worker, char command)
{
    worker->round += command == 't' || command == 'a';
    switch (command) {
    case 't':
        return take(worker);
    case 'r':
        return gmb_lease_release(worker->lease) < 0 ? '-' : '+';
    case 'k':
        return keep(worker);
    case 'a':
        return fill_arena(worker);
    case 'v':
        return verify_arena(worker);
    default:
        return '-';
    }
}

int main(int argc, char **argv)
{
    struct gmb_options options = {.size = sizeof(options)};
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
