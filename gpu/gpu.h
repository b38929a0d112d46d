/*
 * The seam to the GPU: what broker, mover and client ask of a driver, and nothing else of it.
 *
 * A `struct gpu` is one opened driver with the devices that this process sees. It is used through
 * its vtables, so that a test's double fits in the same place: one for virtual memory, whose chunks
 * are exported as fds, and one for legacy CUDA IPC, whose chunks are whole slabs of cuMemAlloc and
 * travel as 64-byte tokens. Devices are known by UUID; ordinals never leave the module.
 *
 * Two roles. The broker creates, exports, imports and releases chunks and asks NVML for free
 * memory: none of that creates a CUDA context, so that no device memory is spent on one and no
 * sticky error (700, 719) can reach it. Mover and client retain a context and map chunks. Slabs
 * belong to the context of the process that made them: that is neither broker nor client, but one
 * that has no other task (daemon/slab).
 *
 * Errors: base/error.h. Negative errno with `error` (may be NULL) filled; the one positive outcome
 * is GPU_NO_MEMORY. After -EIO the process's CUDA state is poisoned: it must end.
 *
 * Threads: open and close from one thread; everything else from any thread at any time. Calls
 * block for as long as the driver does (microseconds to milliseconds; a contended driver serialises
 * processes), never on another process's good will.
 *
 * Fork: a child must not use its parent's `struct gpu`: every call fails there.
 */
#pragma once

#include "base/macro.h"

struct CUctx_st;
struct cuda_api;

enum gpu_driver { GPU_DRIVER_CUDA, GPU_DRIVER_SIM, GPU_DRIVER_MAX };

enum gpu_role {
    GPU_ROLE_BROKER, /* NVML is required */
    GPU_ROLE_CLIENT, /* NVML is not opened: memory_info and processes give -EOPNOTSUPP */
    GPU_ROLE_MAX
};

/* How a chunk travels to another process. Numbers travel on the wire: never renumber. */
enum gpu_handle_type {
    GPU_HANDLE_POSIX_FD = 0,
    GPU_HANDLE_IPC =
        1, /* legacy cudaIpc: whole cuMemAlloc slabs, a 64-byte token instead of an fd */
    GPU_HANDLE_MAX
};

enum gpu_access { GPU_ACCESS_NONE, GPU_ACCESS_READ, GPU_ACCESS_READ_WRITE, GPU_ACCESS_MAX };

enum gpu_outcome {
    GPU_OK = 0,
    GPU_NO_MEMORY = 1, /* the device is full now; often transient: memory of the dead comes late */
    GPU_OUTCOME_MAX
};

#define GPU_UUID_SIZE 48 /* `GPU-8-4-4-4-12` is 40 characters, and so is `MIG-…` */
#define GPU_NAME_SIZE 96
#define GPU_IPC_TOKEN_SIZE 64
#define GPU_ERROR_SIZE 256

struct gpu_error {
    int code;                  /* CUresult or nvmlReturn_t; 0 when the driver wasn't at fault */
    char text[GPU_ERROR_SIZE]; /* `cuMemCreate: CUDA_ERROR_INVALID_VALUE (1)` */
};

/* Constant from open to close. */
struct gpu_device {
    char uuid[GPU_UUID_SIZE];
    char name[GPU_NAME_SIZE];
    uint64_t total_bytes;       /* of the device as CUDA counts it */
    uint64_t granularity_bytes; /* chunk sizes and mapped addresses are multiples of it; the
                                   addresses of slabs are the driver's choice */
    bool vmm;                   /* attribute 102 */
    bool posix_fd;              /* attribute 103: chunks can be exported as fds */
    bool rdma;                  /* attribute 110: chunks are created RDMA capable */
};

struct gpu_memory {
    uint64_t free_bytes; /* of the whole device, over all processes; racy by nature */
    uint64_t total_bytes;
};

struct gpu_process {
    int pid;        /* in this pid namespace, if the driver translates */
    bool known;     /* whether `bytes` is known */
    uint64_t bytes; /* what the driver charges to it: owners are charged, importers aren't */
};

/*
 * One reference to a physical allocation. A value: the caller stores it, `chunk_release` ends it.
 * All zero is "no chunk".
 */
struct gpu_chunk {
    const struct gpu_device *device;
    uint64_t handle;
    uint64_t bytes;
};

/* The smallest slab, and what all are multiples of: the block that cuMemAlloc cuts into pieces. So
 * no slab shares one with another, which whoever opens the slab would map, too. */
#define GPU_SLAB_BYTES (UINT64_C(2) << 20)

/* What a chunk is sent as. Owns `fd` under POSIX_FD; −1 under IPC. */
struct gpu_shareable {
    enum gpu_handle_type type;
    int fd;
    unsigned char ipc_token[GPU_IPC_TOKEN_SIZE];
};

struct gpu;

struct gpu_ops {
    /* ---- the broker's side: no context needed, none created ---- */

    /* Free and total bytes, from NVML. -EOPNOTSUPP without NVML. */
    int (*memory_info)(struct gpu *gpu, const struct gpu_device *device, struct gpu_memory *ret,
        struct gpu_error *error);

    /*
     * Processes with a compute context on the device, at most `capacity`; `*ret_count` is how many
     * were written. -EOPNOTSUPP where the driver keeps no list; -E2BIG when there are more.
     */
    int (*processes)(struct gpu *gpu, const struct gpu_device *device, size_t capacity,
        struct gpu_process *ret_processes, size_t *ret_count, struct gpu_error *error);

    /*
     * Commits `bytes` (> 0, a multiple of the granularity; else -EINVAL) of device memory. The
     * bytes have whatever content the last owner left if the driver doesn't scrub. GPU_NO_MEMORY
     * when the device has no room. The memory stays until every reference, mapping and exported
     * fd, in every process, is gone.
     * Under IPC: needs the device's context to be retained, and blocks until the bytes are zero.
     * The slab lives as long as this reference: whether a mapping keeps its memory beyond that,
     * and beyond the death of this process, CUDA leaves undefined.
     */
    int (*chunk_create)(struct gpu *gpu, const struct gpu_device *device, uint64_t bytes,
        struct gpu_chunk *ret, struct gpu_error *error);

    /*
     * A token for another process; under POSIX_FD a new fd at each call, owned by the caller,
     * CLOEXEC. The token is a bearer capability and can't be recalled. The driver makes the fd
     * and this call sets the flag: a program that another thread starts in between inherits it, so
     * whoever exports starts no programs meanwhile.
     */
    int (*chunk_export)(struct gpu *gpu, const struct gpu_chunk *chunk, struct gpu_shareable *ret,
        struct gpu_error *error);

    /*
     * A new reference to an exported chunk. `shareable` stays the caller's: its fd may be closed
     * at once afterwards. No driver call tells the size: `bytes` must be what the exporter said.
     * -EINVAL when the fd is no device memory, -ENODEV when its device isn't visible here.
     * Under IPC no driver is asked: what it says of the token, chunk_map says.
     */
    int (*chunk_import_borrow)(struct gpu *gpu, const struct gpu_device *device,
        const struct gpu_shareable *shareable, uint64_t bytes, struct gpu_chunk *ret,
        struct gpu_error *error);

    /*
     * Gives the reference back; mappings stay valid. On success the chunk is set to zero; a zero
     * chunk is no error. On failure it is untouched.
     */
    int (*chunk_release)(struct gpu *gpu, struct gpu_chunk *chunk, struct gpu_error *error);

    /* ---- client and mover ---- */

    /*
     * Takes a reference to the device's primary context, creating it at first: that costs 0.1 to
     * 0.6 GiB of device memory. It isn't made current. Must precede the calls below.
     */
    int (*context_retain)(struct gpu *gpu, const struct gpu_device *device,
        struct CUctx_st **ret_context, struct gpu_error *error);
    int (*context_release)(
        struct gpu *gpu, const struct gpu_device *device, struct gpu_error *error);
    /* Waits for all work in the context. The current context of the thread is kept. */
    int (*context_synchronize)(struct gpu *gpu, struct CUctx_st *context, struct gpu_error *error);

    /*
     * Reserves address space, no memory. `bytes` > 0 and `align` (0 or a power of two): multiples
     * of the granularity. -EOPNOTSUPP under IPC, as range_free: there the driver places slabs.
     */
    int (*range_reserve)(struct gpu *gpu, uint64_t bytes, uint64_t align, uint64_t *ret_address,
        struct gpu_error *error);
    /* Exactly one reserved range, nothing mapped in it. */
    int (*range_free)(struct gpu *gpu, uint64_t address, uint64_t bytes, struct gpu_error *error);

    /*
     * Maps the whole chunk at `address`, inside a reserved range and free there, without access.
     * The mapping is a reference of its own: the chunk may be released afterwards. `*ret_address`
     * (may be NULL) is where it came to lie.
     * Under IPC only imported chunks are mapped, readable and writable at once, at `address` 0:
     * where the driver likes. -ENXIO in the process that made the slab; -EINVAL where the token
     * opens nothing (any more). A slab that is mapped twice lies at one address.
     */
    int (*chunk_map)(struct gpu *gpu, const struct gpu_chunk *chunk, uint64_t address,
        uint64_t *ret_address, struct gpu_error *error);

    /*
     * Sets what `device` may do in a contiguous span of whole mappings, in one call. No boundary
     * against the owner of the process, who can set it anew. Under IPC there is READ_WRITE alone:
     * -EOPNOTSUPP.
     */
    int (*span_set_access)(struct gpu *gpu, const struct gpu_device *device, uint64_t address,
        uint64_t bytes, enum gpu_access access, struct gpu_error *error);

    /*
     * Unmaps a contiguous span of whole mappings. Does NOT wait for work that uses them:
     * synchronise before, or the context dies of error 700. Under IPC one slab, by its address.
     */
    int (*span_unmap)(struct gpu *gpu, uint64_t address, uint64_t bytes, struct gpu_error *error);

    /* Ends the object; called by gpu_close alone. Never fails. */
    void (*close)(struct gpu *gpu);
};

struct gpu {
    const struct gpu_ops *ops; /* chunks of virtual memory … */
    const struct gpu_ops *ipc; /* … and slabs; NULL in a double that has none. What isn't of chunks
                                  (memory_info, processes, context_*) is the same in both */
    enum gpu_driver driver;
    int driver_version; /* 1000 × major + 10 × minor */
    /* The functions themselves, for programs that copy, fill and launch; NULL in a double. */
    const struct cuda_api *cuda;
    size_t device_count;
    const struct gpu_device *const *devices;
};

/*
 * Loads and initialises a driver and lists its devices. Blocks for up to seconds on a GPU that
 * nobody uses. Creates no context. -ENODEV: no driver, no device, or the toolkit's stub library;
 * -ENOSYS: the driver is too old. `error` says which.
 */
int gpu_open(enum gpu_driver driver, enum gpu_role role, struct gpu **ret,
    struct gpu_error *error) _must_check_;

/* Chunks, ranges and contexts must have been given back. NULL is allowed. Returns NULL. */
struct gpu *gpu_close(struct gpu *gpu);

static inline void gpu_close_ptr(struct gpu **gpu)
{
    *gpu = gpu_close(*gpu);
}

/*
 * NULL when this process doesn't see it. Only the 32 digits count, not whether they follow `GPU-`
 * or `MIG-`: a process without NVML can't tell the two kinds apart.
 */
const struct gpu_device *gpu_device_find(const struct gpu *gpu, const char *uuid);

/* How the device's memory can be shared: IPC where attribute 102 or 103 is absent. */
enum gpu_handle_type gpu_device_sharing(const struct gpu_device *device);
/* What sizes of chunks that travel so are multiples of. */
uint64_t gpu_device_granularity(const struct gpu_device *device, enum gpu_handle_type type);
/* The calls for chunks that travel so; NULL where there are none. */
static inline const struct gpu_ops *gpu_ops_for(const struct gpu *gpu, enum gpu_handle_type type)
{
    return type == GPU_HANDLE_IPC ? gpu->ipc : gpu->ops;
}

/* `cuda`, `sim`; `posix-fd`, `ipc`. Never NULL; "unknown" outside the enum. */
const char *gpu_driver_name(enum gpu_driver driver);
const char *gpu_handle_type_name(enum gpu_handle_type type);
/* -EINVAL for any other text. */
int gpu_driver_parse(const char *name, enum gpu_driver *ret_driver) _must_check_;
