/* Ownership and small arithmetic helpers that every folder uses. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* Runs `fn(&variable)` when the variable leaves scope: put on every owning local. */
#define _cleanup_(fn) __attribute__((cleanup(fn)))
#define _cleanup_free_ _cleanup_(free_ptr)
#define _cleanup_close_ _cleanup_(close_fd)

#define _public_ __attribute__((visibility("default")))
#define _printf_(fmt, first) __attribute__((format(printf, fmt, first)))
#define _must_check_ __attribute__((warn_unused_result))

/* Moves ownership out of a local: the local is left unowned, so its cleanup does nothing. */
#define TAKE_PTR(ptr)                                                                              \
    ({                                                                                             \
        __typeof__(ptr) *_taken_at = &(ptr);                                                       \
        __typeof__(ptr) _taken = *_taken_at;                                                       \
        *_taken_at = NULL;                                                                         \
        _taken;                                                                                    \
    })
#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int *_taken_at = &(fd);                                                                    \
        int _taken = *_taken_at;                                                                   \
        *_taken_at = -1;                                                                           \
        _taken;                                                                                    \
    })

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

#define container_of(ptr, type, member)                                                            \
    ((type *) ((char *) (uintptr_t) (ptr) -offsetof(type, member)))

/* For messages: "1 tenant", "2 tenants". */
#define PLURAL_S(count) ((count) == 1 ? "" : "s")

#define MIN(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) _a = (a);                                                                    \
        __typeof__(b) _b = (b);                                                                    \
        _a < _b ? _a : _b;                                                                         \
    })
#define MAX(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) _a = (a);                                                                    \
        __typeof__(b) _b = (b);                                                                    \
        _a > _b ? _a : _b;                                                                         \
    })

static inline void free_ptr(void *at)
{
    void **ptr = at;
    free(*ptr);
    *ptr = NULL;
}

static inline void close_fd(int *fd)
{
    if (*fd >= 0)
        (void) close(*fd);
    *fd = -1;
}

/* Saturating subtraction: what is left of `a` after `b`, never below zero. */
static inline uint64_t sub_saturate(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Sum that stays at UINT64_MAX instead of wrapping round. */
static inline uint64_t add_saturate(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* Rounds `value` up to a multiple of `step` (> 0). False when the result doesn't fit. */
static inline bool round_up(uint64_t value, uint64_t step, uint64_t *ret)
{
    uint64_t rest = value % step;
    uint64_t rounded = value;

    if (rest != 0 && __builtin_add_overflow(value, step - rest, &rounded))
        return false;
    *ret = rounded;
    return true;
}
