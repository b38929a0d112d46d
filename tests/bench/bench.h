/*
 * Rows of `./dev bench`: a value, what it is held against, and whether the budget is met. A floor
 * is measured in the same run as the value, so that the ratio means the same on every machine.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct bench_row {
    const char *name; /* of static storage, like `unit`; never renamed */
    double value;
    const char *unit;
    double floor;  /* in the same unit */
    double ratio;  /* value / floor */
    double budget; /* 0: none. Else the largest ratio allowed; of `broker_rss` and `restart_*` the
                      largest value, of `*_bandwidth` and `policy_decision*` the smallest ratio */
    bool met;
};

/* As many open files as this process may have. */
void bench_fds_raise(void);

/*
 * Each measures and fills rows, at most `max`; how many, or a negative errno. Blocks for a second
 * or so.
 */

/*
 * `core_step_scaling`: ns for a lease request and a release, two steps of the core, at 10^2 to 10^5
 * existing leases; the value is the slowest, the floor the fastest of the four.
 */
int bench_core_step_scaling(struct bench_row *rows, size_t max);

/*
 * `lease_roundtrip`: us from a request for one ready chunk to its fd in hand, through a real gmbd
 * on the simulated GPU; the floor is an echo with one fd between two processes over the same kind
 * of socket, taken in turns with it. Medians.
 */
int bench_lease_roundtrip(struct bench_row *rows, size_t max);

/*
 * `broker_rss`: resident MiB of gmbd with 1,000 connections that lease 100,000 chunks; the floor is
 * what it had before.
 */
int bench_broker_rss(struct bench_row *rows, size_t max);

/*
 * `evict_bandwidth`, `restore_bandwidth`: MiB a second of 64 KiB pages through a real mover on the
 * simulated GPU; the floor is memcpy of the same pages by two threads, taken in turns. The budget
 * is the smallest ratio allowed.
 */
int bench_mover_bandwidth(struct bench_row *rows, size_t max);

/*
 * `page_alloc_free`: ns for gmb_page_alloc() and gmb_page_unref() of one page, with 16 pages held,
 * by 1, 2 and 4 threads at once; the floor is one atomic add by as many threads, each to its own
 * cache line. `page_alloc_free_shared`: the same in an arena that several processes may hold, whose
 * pages take more. Then `page_alloc_free` by one thread held against malloc, jemalloc and mimalloc,
 * where these are installed: for comparison.
 */
int bench_page_alloc_free(struct bench_row *rows, size_t max);

/*
 * `pressure_read`: ns for gmb_pressure_get(); the floor is one atomic load from the same place.
 * Each read depends on the one before.
 */
int bench_pressure_read(struct bench_row *rows, size_t max);

/*
 * `pressure_latency`, `pressure_latency_1000`: us from a request that crosses a watermark to the
 * callback of a worker, with 1 and with 1,000 subscribed clients; medians, and with `_p99` the 99th
 * percentile. The floor is the same request's Grant.
 */
int bench_pressure_latency(struct bench_row *rows, size_t max);

/*
 * `fragmentation`: % of a device that an arena has mapped and neither uses nor can give back, after
 * 10^6 random allocations and frees at a load that wanders between 30 and 100 % and ends at 60 %,
 * with the engine taking up the moves that gmb_arena_compact() plans. `fragmentation_unmoved`: the
 * same for an engine that moves no page, for comparison.
 */
int bench_fragmentation(struct bench_row *rows, size_t max);

/*
 * `policy_decision_1000` to `policy_decision_1000000`: victims named and pages admitted in their
 * places by the default eviction policy, each second, with so many pages cached; the floor is the
 * first of them. `policy_decision`: the slowest of them.
 */
int bench_policy_decision(struct bench_row *rows, size_t max);

/*
 * `reclaim_latency_2M`, `_32M`, `_256M`: ms from a request that waits where all memory is in cold
 * pages of another tenant to its last chunk, through a real gmbd, mover and worker; medians, and
 * with `_p99` the 99th percentile. `reclaim_latency_own_*`: the same where the pages are of the
 * requester's own tenant. The floor is one memcpy of as many bytes. -EPERM unless root runs it.
 */
int bench_reclaim_latency(struct bench_row *rows, size_t max);

/*
 * `reclaim_plan`: ms for a plan that takes all of 100,000 chunks of 64 tenants; the floor is the 50
 * ms for which the broker may not look up.
 */
int bench_reclaim_plan(struct bench_row *rows, size_t max);

/*
 * `segment_attach`: ms until a second process has weights of 128 MiB, which are sealed, mapped; the
 * floor is what creating, writing and sealing them took the first one. Medians.
 * `segment_attach_bytes`: device memory that this took; the floor is a copy for each.
 */
int bench_segment_attach(struct bench_row *rows, size_t max);

/*
 * `restart_blackout`: ms from SIGKILL of the broker to a lease that a new client is granted by the
 * next one, under gmbd-keeper, with 16 workers that hold 512 chunks in 64 leases and a quarter of
 * which go on asking; the median of 50, and with `_p99` the longest. `restart_resumed`: the same
 * until every worker is back. The floor is the time that importing 512 chunks takes; the budget of
 * the black-out is 100 ms beyond it.
 */
int bench_restart_blackout(struct bench_row *rows, size_t max);
