/* The page functions need a table, and of the session its generation alone. */
#include "tests/bench/arena_bed.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "client/arena_own.h"
#include "client/fork.h"

int arena_bed_make(
    uint32_t pages_per_chunk, uint32_t chunks, uint32_t flags, struct gmb_arena **ret)
{
    static struct gmb_session session;
    size_t size = (sizeof(struct gmb_arena) + 63) / 64 * 64;
    struct arena_table_header layout;
    struct arena_table table;
    struct gmb_arena *arena;
    void *memory;

    if (arena_table_layout(65536, 65536ULL * pages_per_chunk, chunks, flags, &layout) < 0)
        return -EINVAL;
    memory =
        mmap(NULL, layout.table_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -ENOMEM;
    arena = aligned_alloc(64, size);
    if (arena == NULL) {
        (void) munmap(memory, layout.table_bytes);
        return -ENOMEM;
    }
    memset(arena, 0, size);
    session.generation = atomic_load(&fork_generation);
    session.pid = getpid();
    arena->lease.session = &session;
    arena->table_memory = memory;
    arena->table_bytes = layout.table_bytes;
    arena_table_format(memory, &layout, &table);
    arena_pool_init(&arena->pool, &table);
    if (flags != 0 && arena_own_new(&arena->pool.table, 0) < 0) {
        arena_bed_free(arena);
        return -ENOMEM;
    }
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        if (flags != 0)
            arena_own_set_mapped(&arena->pool.table, chunk, true);
        arena_chunk_open(&arena->pool, chunk);
    }
    *ret = arena;
    return 0;
}

void arena_bed_free(struct gmb_arena *arena)
{
    if (arena == NULL)
        return;
    arena_own_free(&arena->pool.table);
    (void) munmap(arena->table_memory, arena->table_bytes);
    free(arena);
}
