/*
 * Bytes a second through a mover of its own on a simulated device of its own, against memcpy of the
 * same pages between the same two files by two threads. Everything is touched before it is
 * measured. Rounds alternate, and the best of each counts.
 */
#include <errno.h>
#include <event2/event.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "daemon/mover_control.h"
#include "gpu/gpu.h"
#include "tests/bench/bench.h"

#define MIB (UINT64_C(1) << 20)
#define CHUNK_BYTES (2 * MIB)
#define CHUNKS 128
#define PAGE_BYTES (UINT64_C(64) << 10)
#define PAGES_PER_CHUNK (CHUNK_BYTES / PAGE_BYTES)
#define CHUNKS_PER_JOB 8
#define JOBS (CHUNKS / CHUNKS_PER_JOB)
#define COPIES (CHUNKS_PER_JOB * PAGES_PER_CHUNK)
#define TOTAL_BYTES (CHUNKS * CHUNK_BYTES)
#define ROUNDS 25
#define THREADS 2

struct bench {
    char directory[32];
    struct gpu *gpu;
    struct event_base *base;
    struct tier *tier;
    struct tier_account account;
    struct tier_space *space;
    struct mover_control *control;
    struct gpu_chunk chunks[CHUNKS];
    unsigned char *device[CHUNKS]; /* the same bytes, for memcpy */
    unsigned char *host;
    struct mover_copy copies[JOBS][COPIES];
    size_t left; /* jobs of this round */
    int error;
};

static struct bench bench;

/* ------------------------------------------------------------------ the mover's owner */

static int on_export(void *data, uint32_t number, uint32_t generation, int *ret_fd)
{
    struct gpu_shareable shareable;
    int r = bench.gpu->ops->chunk_export(bench.gpu, &bench.chunks[number], &shareable, NULL);

    (void) data;
    (void) generation;
    if (r == 0)
        *ret_fd = shareable.fd;
    return r;
}

static void on_done(void *data, const struct mover_result *result)
{
    struct mover_copy *copies = result->job.owner;

    (void) data;
    if (result->error < 0 && bench.error == 0)
        bench.error = result->error;
    for (size_t i = 0; i < result->job.copy_count; i++) {
        if (result->job.copies[i].damaged)
            bench.error = -EBADMSG;
        copies[i].checksum = result->job.copies[i].checksum;
    }
    if (--bench.left == 0)
        (void) event_base_loopbreak(bench.base);
}

static void on_wanted(void *data, uint64_t bytes)
{
    (void) data;
    (void) bytes;
}

static void on_forgotten(void *data, uint32_t number, uint32_t generation)
{
    (void) data;
    (void) number;
    (void) generation;
}

/* Every page one way; nanoseconds, or -errno. */
static int64_t mover_round(enum mover_kind kind)
{
    uint64_t start_ns = clock_now(&clock_monotonic);

    bench.left = JOBS;
    for (size_t i = 0; i < JOBS; i++) {
        struct mover_chunk chunks[CHUNKS_PER_JOB];
        struct mover_job job = {.kind = kind,
            .page_bytes = PAGE_BYTES,
            .chunk_count = CHUNKS_PER_JOB,
            .copy_count = COPIES,
            .chunks = chunks,
            .copies = bench.copies[i],
            .owner = bench.copies[i]};
        int r;

        for (size_t j = 0; j < CHUNKS_PER_JOB; j++)
            chunks[j] = (struct mover_chunk){
                .number = (uint32_t) (i * CHUNKS_PER_JOB + j), .bytes = CHUNK_BYTES};
        r = mover_submit(bench.control, &job);
        if (r < 0)
            return r;
    }
    if (event_base_loop(bench.base, 0) < 0)
        return -EIO;
    return bench.error < 0 ? bench.error : (int64_t) (clock_now(&clock_monotonic) - start_ns);
}

/* ------------------------------------------------------------------ the floor */

struct copier {
    pthread_t thread;
    size_t first;
    bool back;
};

static void *copier_run(void *data)
{
    const struct copier *copier = data;

    for (size_t i = copier->first; i < JOBS; i += THREADS) {
        for (size_t j = 0; j < COPIES; j++) {
            const struct mover_copy *copy = &bench.copies[i][j];
            unsigned char *page =
                bench.device[i * CHUNKS_PER_JOB + copy->chunk] + copy->chunk_offset;
            unsigned char *slot = bench.host + copy->tier_offset;

            memcpy(copier->back ? page : slot, copier->back ? slot : page, PAGE_BYTES);
        }
    }
    return NULL;
}

static int64_t floor_round(bool back)
{
    struct copier copiers[THREADS];
    uint64_t start_ns = clock_now(&clock_monotonic);

    for (size_t i = 0; i < THREADS; i++) {
        copiers[i] = (struct copier){.first = i, .back = back};
        if (pthread_create(&copiers[i].thread, NULL, copier_run, &copiers[i]) != 0)
            return -EAGAIN;
    }
    for (size_t i = 0; i < THREADS; i++)
        (void) pthread_join(copiers[i].thread, NULL);
    return (int64_t) (clock_now(&clock_monotonic) - start_ns);
}

/* ------------------------------------------------------------------ set-up */

static int device_open(uint8_t uuid[16])
{
    unsigned bytes[16];
    const char *text;
    int r;

    strcpy(bench.directory, "/dev/shm/gmb-bench-XXXXXX");
    if (mkdtemp(bench.directory) == NULL || chmod(bench.directory, 01777) < 0)
        return -errno;
    if (setenv("GMB_SIM_DIR", bench.directory, 1) < 0 || setenv("GMB_SIM_MEMORY", "1G", 1) < 0 ||
        setenv("GMB_SIM_FILL", "none", 1) < 0)
        return -errno;
    r = gpu_open(GPU_DRIVER_SIM, GPU_ROLE_BROKER, &bench.gpu, NULL);
    if (r < 0)
        return r;
    text = bench.gpu->devices[0]->uuid;
    if (sscanf(text, "GPU-%2x%2x%2x%2x-%2x%2x-%2x%2x-%2x%2x-%2x%2x%2x%2x%2x%2x", &bytes[0],
            &bytes[1], &bytes[2], &bytes[3], &bytes[4], &bytes[5], &bytes[6], &bytes[7], &bytes[8],
            &bytes[9], &bytes[10], &bytes[11], &bytes[12], &bytes[13], &bytes[14],
            &bytes[15]) != 16)
        return -EBADMSG;
    for (size_t i = 0; i < 16; i++)
        uuid[i] = (uint8_t) bytes[i];
    return 0;
}

static int chunks_create(void)
{
    for (size_t i = 0; i < CHUNKS; i++) {
        _cleanup_close_ int fd = -1;
        void *mapped;
        int r = bench.gpu->ops->chunk_create(
            bench.gpu, bench.gpu->devices[0], CHUNK_BYTES, &bench.chunks[i], NULL);

        if (r == 0)
            r = on_export(NULL, (uint32_t) i, 0, &fd);
        if (r != 0)
            return r < 0 ? r : -ENOMEM;
        mapped = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (mapped == MAP_FAILED)
            return -errno;
        bench.device[i] = mapped;
        memset(mapped, (int) i, CHUNK_BYTES);
    }
    return 0;
}

static int tier_open(void)
{
    void *mapped;
    int r = tier_new(2 * TOTAL_BYTES, TIER_SLAB_BYTES, &bench.tier);

    if (r < 0)
        return r;
    bench.account.max_bytes = UINT64_MAX;
    r = tier_space_new(bench.tier, &bench.account, PAGE_BYTES, &bench.space);
    for (size_t i = 0; r == 0 && i < JOBS * COPIES; i++) {
        struct mover_copy *copy = &bench.copies[i / COPIES][i % COPIES];

        copy->chunk = (uint32_t) (i % COPIES / PAGES_PER_CHUNK);
        copy->chunk_offset = i % PAGES_PER_CHUNK * PAGE_BYTES;
        r = tier_slot_alloc(bench.space, &copy->tier_offset);
    }
    if (r != 0)
        return r < 0 ? r : -ENOSPC;
    mapped = mmap(
        NULL, tier_bytes(bench.tier), PROT_READ | PROT_WRITE, MAP_SHARED, tier_fd(bench.tier), 0);
    if (mapped == MAP_FAILED)
        return -errno;
    bench.host = mapped;
    return 0;
}

static int bench_open(void)
{
    const struct mover_handler handler = {.chunk_export = on_export,
        .job_done = on_done,
        .memory_wanted = on_wanted,
        .chunk_forgotten = on_forgotten};
    struct mover_options options = mover_options_default;
    uint8_t uuid[16];
    int r = device_open(uuid);

    if (r == 0)
        r = chunks_create();
    if (r == 0)
        r = tier_open();
    if (r < 0)
        return r;
    options.driver = "sim";
    options.program = GMB_MOVER_PATH;
    bench.base = event_base_new();
    if (bench.base == NULL)
        return -ENOMEM;
    return mover_control_new(
        bench.base, &clock_monotonic, bench.tier, uuid, &options, &handler, &bench.control);
}

static int entry_remove(const char *path, const struct stat *stat, int type, struct FTW *place)
{
    (void) stat;
    (void) type;
    (void) place;
    return remove(path);
}

static void bench_close(void)
{
    bench.left = SIZE_MAX;
    bench.control = mover_control_free(bench.control);
    if (bench.base != NULL)
        event_base_free(bench.base);
    if (bench.host != NULL)
        (void) munmap(bench.host, tier_bytes(bench.tier));
    tier_space_free(bench.space);
    tier_free(bench.tier);
    for (size_t i = 0; i < CHUNKS; i++) {
        if (bench.device[i] != NULL)
            (void) munmap(bench.device[i], CHUNK_BYTES);
        if (bench.gpu != NULL)
            (void) bench.gpu->ops->chunk_release(bench.gpu, &bench.chunks[i], NULL);
    }
    gpu_close(bench.gpu);
    if (bench.directory[0] != '\0')
        (void) nftw(bench.directory, entry_remove, 8, FTW_DEPTH | FTW_PHYS);
    bench = (struct bench){0};
}

/* ------------------------------------------------------------------ rows */

struct best {
    int64_t mover_ns[2], floor_ns[2]; /* out, back */
};

static int rounds_run(struct best *best)
{
    *best = (struct best){{INT64_MAX, INT64_MAX}, {INT64_MAX, INT64_MAX}};
    for (unsigned round = 0; round <= ROUNDS; round++) {
        for (unsigned back = 0; back < 2; back++) {
            int64_t mover_ns = mover_round(back ? MOVER_RESTORE : MOVER_EVICT);
            int64_t floor_ns = mover_ns < 0 ? mover_ns : floor_round(back);

            if (floor_ns < 0)
                return (int) floor_ns;
            /* The first round starts the mover, imports the chunks, page-locks and touches. */
            if (round == 0)
                continue;
            best->mover_ns[back] = MIN(best->mover_ns[back], mover_ns);
            best->floor_ns[back] = MIN(best->floor_ns[back], floor_ns);
        }
    }
    return 0;
}

static struct bench_row row_make(const char *name, int64_t mover_ns, int64_t floor_ns)
{
    const double mib = TOTAL_BYTES / (double) MIB;
    struct bench_row row = {.name = name,
        .value = mib * 1e9 / (double) mover_ns,
        .unit = "MiB/s",
        .floor = mib * 1e9 / (double) floor_ns,
        .budget = 0.8};

    row.ratio = row.value / row.floor;
    row.met = row.ratio >= row.budget;
    return row;
}

int bench_mover_bandwidth(struct bench_row *rows, size_t max)
{
    struct best best;
    int r;

    if (max < 2)
        return -ENOSPC;
    r = bench_open();
    if (r == 0)
        r = rounds_run(&best);
    bench_close();
    if (r < 0)
        return r;
    rows[0] = row_make("evict_bandwidth", best.mover_ns[0], best.floor_ns[0]);
    rows[1] = row_make("restore_bandwidth", best.mover_ns[1], best.floor_ns[1]);
    return 2;
}
