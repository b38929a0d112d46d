/*
 * Questions 4 to 7: fds, MPS, and memory that outlives its creator. Second processes are forked
 * before the driver is initialised in either.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/conformance/peer.h"
#include "tests/gpu/probe.h"

#define CHUNK_BYTES (UINT64_C(64) << 20)
/* How long memory lies with its fd alone: a driver without persistence unloads in this time. */
#define PARKED_SECONDS 3

/* A process that runs `body`, with a socket to us. */
static pid_t second_start(
    struct probe *probe, void (*body)(struct probe *probe, int socket), int *ret_socket)
{
    int sockets[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0 || (pid = fork()) < 0) {
        probe_say(probe, "no second process: %s", strerror(errno));
        exit(EXIT_FAILURE);
    }
    if (pid == 0) {
        (void) close(sockets[0]);
        body(probe, sockets[1]);
        exit(EXIT_SUCCESS);
    }
    (void) close(sockets[1]);
    *ret_socket = sockets[0];
    return pid;
}

static void second_end(pid_t pid, int socket)
{
    (void) close(socket);
    (void) waitpid(pid, NULL, 0);
}

static void turn_give(struct probe *probe, int socket, int fd)
{
    struct peer_message message = {0};

    if (peer_send(socket, &message, fd) < 0) {
        probe_say(probe, "the other process is gone");
        exit(EXIT_FAILURE);
    }
}

/* Waits for the other side's turn_give; its fd or −1. */
static int turn_take(struct probe *probe, int socket)
{
    struct peer_message message;
    int fd;

    if (peer_receive(socket, &message, &fd) < 0) {
        probe_say(probe, "the other process gave up");
        exit(EXIT_FAILURE);
    }
    return fd;
}

/* Lives on until the asking process has seen enough, or has died. */
static void end_wait(int socket)
{
    struct peer_message message;
    int fd;

    (void) peer_receive(socket, &message, &fd);
}

void ask_fd_errors(struct probe *probe)
{
    CUmemGenericAllocationHandle handle, imported;
    struct rlimit limit;
    int foreign, fd = -1, first;

    probe_init(probe);
    handle = probe_chunk(probe, probe->granule);
    foreign = open("/dev/null", O_RDWR | O_CLOEXEC);
    probe_result(probe, "import of /dev/null", probe_import(probe, foreign, &imported));
    (void) close(foreign);
    probe_result(probe, "import of a closed fd", probe_import(probe, foreign, &imported));
    first = dup(STDERR_FILENO);
    (void) close(first);
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = (rlim_t) first;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    probe_result(probe, "export without an fd left", probe_export(probe, handle, &fd));
    probe_result(probe, "cuMemCreate after that",
        probe->cu.mem_create(&imported, probe->granule,
            &(CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = probe->device}},
            0));
}

/* Creates a chunk of CHUNK_BYTES filled with 0xa5, passes its fd, lives on. */
static void owner_run(struct probe *probe, int socket)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    int fd = -1;

    probe_init(probe);
    probe_context(probe);
    handle = probe_chunk(probe, CHUNK_BYTES);
    address = probe_map(probe, handle, CHUNK_BYTES);
    probe_need(probe, "cuMemSetAccess", probe_access(probe, address, CHUNK_BYTES));
    probe_need(probe, "cuMemsetD8", probe->cu.memset_d8(address, 0xa5, CHUNK_BYTES));
    probe_need(probe, "cuCtxSynchronize", probe->cu.ctx_synchronize());
    probe_need(probe, "export", probe_export(probe, handle, &fd));
    turn_give(probe, socket, fd);
    (void) close(fd);
    end_wait(socket);
}

/* Imports the fd, maps it and says whether its bytes are owner_run's. */
static void bytes_check(struct probe *probe, int fd)
{
    CUmemGenericAllocationHandle handle;
    unsigned char ends[2] = {0};
    CUdeviceptr address;
    CUresult result = probe_import(probe, fd, &handle);

    probe_result(probe, "import", result);
    if (result != CUDA_SUCCESS)
        return;
    address = probe_map(probe, handle, CHUNK_BYTES);
    probe_need(probe, "cuMemSetAccess", probe_access(probe, address, CHUNK_BYTES));
    probe_need(probe, "cuMemcpyDtoH", probe->cu.memcpy_dtoh(&ends[0], address, 1));
    probe_need(
        probe, "cuMemcpyDtoH", probe->cu.memcpy_dtoh(&ends[1], address + CHUNK_BYTES - 1, 1));
    probe_say(probe, "its first and last byte: %#x %#x (written: 0xa5)", ends[0], ends[1]);
}

void ask_mps(struct probe *probe)
{
    const char *limit = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    int socket, fd, enabled = 0;
    size_t available = 0, total = 0;
    pid_t owner = second_start(probe, owner_run, &socket);

    probe_init(probe);
    probe_context(probe);
    (void) probe->cu.device_get_attribute(&enabled, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, probe->device);
    if (!enabled)
        probe_say(probe, "MPS isn't running (attribute 133 is 0): what follows is without it");
    fd = turn_take(probe, socket);
    bytes_check(probe, fd);
    (void) close(fd);
    if (probe->cu.mem_get_info(&available, &total) == CUDA_SUCCESS)
        probe_say(probe, "cuMemGetInfo with 64 MiB imported: %zu of %zu MiB free, limit %s",
            available >> 20, total >> 20, limit != NULL ? limit : "none");
    second_end(owner, socket);
}

void ask_parked_fd(struct probe *probe)
{
    const struct timespec pause = {.tv_sec = PARKED_SECONDS};
    int socket, fd;
    pid_t owner = second_start(probe, owner_run, &socket);

    /* This process initialises nothing until the owner is gone and the time is over. */
    fd = turn_take(probe, socket);
    second_end(owner, socket);
    (void) nanosleep(&pause, NULL);
    probe_say(probe, "%d s with the fd alone; this process had not initialised the driver",
        PARKED_SECONDS);
    probe_init(probe);
    probe_context(probe);
    bytes_check(probe, fd);
    (void) close(fd);
}

/* Imports and maps what it is sent, says so, and waits. */
static void importer_run(struct probe *probe, int socket)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    int fd;

    probe_init(probe);
    probe_context(probe);
    turn_give(probe, socket, -1);
    fd = turn_take(probe, socket);
    probe_need(probe, "import", probe_import(probe, fd, &handle));
    (void) close(fd);
    address = probe_map(probe, handle, CHUNK_BYTES);
    probe_need(probe, "cuMemSetAccess", probe_access(probe, address, CHUNK_BYTES));
    turn_give(probe, socket, -1);
    end_wait(socket);
}

static void charge_say(struct probe *probe, const char *who, pid_t pid)
{
    uint64_t bytes = 0;

    if (!probe_charged(probe, pid, &bytes))
        probe_say(probe, "%s: not listed", who);
    else if (bytes == NVML_VALUE_NOT_AVAILABLE)
        probe_say(probe, "%s: listed, figure not available", who);
    else
        probe_say(probe, "%s: %llu KiB", who, (unsigned long long) bytes >> 10);
}

void ask_process_figures(struct probe *probe)
{
    CUmemGenericAllocationHandle handle;
    int socket, fd = -1;
    pid_t importer = second_start(probe, importer_run, &socket);

    probe_init(probe);
    (void) turn_take(probe, socket);
    charge_say(probe, "a process with a context alone", importer);
    handle = probe_chunk(probe, CHUNK_BYTES);
    charge_say(probe, "owner of 64 MiB without a context", getpid());
    probe_need(probe, "export", probe_export(probe, handle, &fd));
    turn_give(probe, socket, fd);
    (void) close(fd);
    (void) turn_take(probe, socket);
    charge_say(probe, "importer of those 64 MiB", importer);
    charge_say(probe, "their owner, still without a context", getpid());
    probe_need(probe, "cuMemRelease", probe->cu.mem_release(handle));
    charge_say(probe, "importer when the owner has released them", importer);
    probe_context(probe);
    charge_say(probe, "the former owner with a context", getpid());
    second_end(importer, socket);
}
