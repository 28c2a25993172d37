/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and events of one process in another. The other one is this program, started anew with the name of
 * its part and a socket, as a forked child has no driver.
 *
 * Sources: cuda.h, cuMemExportToShareableHandle, cuMemImportFromShareableHandle, cuMemRelease, cuIpc*; guide,
 * interprocess communication. */
#include "tests/contract/contract.h"
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self;

struct message {
    char what[16];
    int number;
    union {
        CUipcMemHandle memory;
        CUipcEventHandle event;
    };
};

/* Sends a message, with a descriptor beside it unless that is -1. */
static void post(int socket, const struct message *message, int descriptor)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)message, sizeof *message};
    struct msghdr out = {.msg_iov = &part, .msg_iovlen = 1};
    if (descriptor >= 0) {
        out.msg_control = control.bytes;
        out.msg_controllen = sizeof control.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&out);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    if (sendmsg(socket, &out, MSG_NOSIGNAL) != (ssize_t)sizeof *message)
        fail_msg("the other process is gone");
}

/* Returns the descriptor that came with the message, or -1. */
static int receive(int socket, struct message *message)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {message, sizeof *message};
    struct msghdr in = {.msg_iov = &part,
                        .msg_iovlen = 1,
                        .msg_control = control.bytes,
                        .msg_controllen = sizeof control.bytes};
    int descriptor = -1;
    if (recvmsg(socket, &in, 0) != (ssize_t)sizeof *message)
        return -2;
    struct cmsghdr *header = CMSG_FIRSTHDR(&in);
    if (header)
        memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return descriptor;
}

/* ---- the other process ---- */

/* A part fails by ending with the number of its line. */
#define NEED(condition)                                                                                      \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "the other process: line %d: " #condition "\n", __LINE__);                       \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static void wait_for(int socket, const char *what, struct message *message)
{
    receive(socket, message);
    NEED(!strcmp(message->what, what));
}

static void say(int socket, const char *what, int number)
{
    struct message message = {.number = number};
    snprintf(message.what, sizeof message.what, "%s", what);
    post(socket, &message, -1);
}

/* Maps a handle that came, checks and changes its words, and keeps it until it is told to let go. */
static void use_handle(int socket, int descriptor)
{
    struct message message;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    CUdeviceptr base;
    unsigned word = 0;
    CUmemAccessDesc desc = read_write(0);
    NEED(descriptor >= 0);
    NEED(!cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)descriptor,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(descriptor);
    NEED(!cuMemGetAllocationPropertiesFromHandle(&prop, handle));
    NEED(prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop.location.id == 0);
    NEED(!cuMemAddressReserve(&base, 2 * granularity, 0, 0, 0));
    NEED(!cuMemMap(base, 2 * granularity, 0, handle, 0));
    NEED(!cuMemRelease(handle)); /* the mapping keeps it */
    NEED(!cuMemSetAccess(base, 2 * granularity, &desc, 1));
    NEED(!cuMemcpyDtoH(&word, base + granularity + 64, 4));
    NEED(word == 31);
    NEED(!cuMemsetD32(base, 77, 64));
    NEED(!cuCtxSynchronize());
    say(socket, "used", 0);
    wait_for(socket, "look again", &message);
    NEED(!cuMemcpyDtoH(&word, base + granularity + 64, 4));
    NEED(word == (unsigned)message.number);
    say(socket, "looked", 0);
    wait_for(socket, "let go", &message);
    NEED(!cuMemUnmap(base, 2 * granularity));
    NEED(!cuMemAddressFree(base, 2 * granularity));
    say(socket, "gone", 0);
    wait_for(socket, "end", &message);
}

static void part_handle(int socket)
{
    struct message message;
    use_handle(socket, receive(socket, &message));
}

/* Takes the descriptor out of the other process by its number. */
static void part_fetch(int socket)
{
    struct message message;
    wait_for(socket, "descriptor", &message);
    int process = (int)syscall(SYS_pidfd_open, getppid(), 0);
    int descriptor = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, message.number, 0);
    if (descriptor < 0) {
        say(socket, "cannot", 0);
        exit(0);
    }
    use_handle(socket, descriptor);
}

static void part_legacy(int socket)
{
    struct message message;
    CUdeviceptr ptr, again;
    unsigned word = 0;
    wait_for(socket, "memory", &message);
    NEED(!cuIpcOpenMemHandle(&ptr, message.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    NEED(!cuIpcOpenMemHandle(&again, message.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    NEED(ptr == again); /* cuda.h: the existing device pointer is returned */
    NEED(!cuMemcpyDtoH(&word, ptr + 4, 4));
    NEED(word == 41);
    NEED(!cuIpcCloseMemHandle(again));
    NEED(!cuMemsetD32(ptr, 88, 16));
    NEED(!cuCtxSynchronize());
    NEED(!cuIpcCloseMemHandle(ptr));
    NEED(cuIpcCloseMemHandle(ptr) == CUDA_ERROR_INVALID_VALUE);
    say(socket, "used", 0);
    wait_for(socket, "end", &message);
}

static void part_event(int socket)
{
    struct message message;
    CUevent event;
    CUstream stream;
    wait_for(socket, "event", &message);
    NEED(!cuIpcOpenEventHandle(&event, message.event));
    NEED(!cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(!cuStreamWaitEvent(stream, event, 0));
    NEED(!cuStreamSynchronize(stream));
    NEED(!cuEventSynchronize(event));
    NEED(!cuEventDestroy(event));
    NEED(!cuStreamDestroy(stream));
    say(socket, "used", 0);
    wait_for(socket, "end", &message);
}

static const struct {
    const char *name;
    void (*run)(int socket);
} parts[] = {{"handle", part_handle}, {"fetch", part_fetch}, {"legacy", part_legacy}, {"event", part_event}};

static int other_process(const char *name, int socket)
{
    void *state = NULL;
    NEED(!cuInit(0));
    NEED(!contract_setup(&state));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(parts[i].name, name))
            parts[i].run(socket);
    NEED(!contract_teardown(&state));
    return 0;
}

/* ---- this one ---- */

static pid_t start_other(const char *part, int *socket)
{
    int ends[2];
    char number[16];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    snprintf(number, sizeof number, "%d", ends[1]);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        execl(self, self, part, number, (char *)NULL);
        _exit(9);
    }
    close(ends[1]);
    *socket = ends[0];
    return child;
}

static void assert_told(int socket, const char *what)
{
    struct message message = {0};
    receive(socket, &message);
    assert_string_equal(message.what, what);
}

static void end_other(pid_t child, int socket)
{
    int status;
    say(socket, "end", 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(socket);
}

static CUmemGenericAllocationHandle create_exportable(int *descriptor)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop = device_prop(0);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    /* note: the attribute may say yes and creation no, in containers for instance */
    if (cuMemCreate(&handle, 2 * granularity, &prop, 0))
        CONTRACT_SKIP("no handles that another process can open");
    assert_ok(cuMemExportToShareableHandle(descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return handle;
}

/* Both see each other's words; the memory stays while either has it, and goes with the last. */
static void share_handle(const char *part, bool fetched)
{
    int socket, descriptor;
    unsigned word = 0;
    struct message message = {.what = "descriptor"};
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = create_exportable(&descriptor);
    CUdeviceptr base = reserve(2 * granularity);
    assert_ok(cuMemMap(base, 2 * granularity, 0, handle, 0));
    give_access(base, 2 * granularity);
    assert_ok(cuMemsetD32(base, 0, 2 * granularity / 4));
    assert_ok(cuMemsetD32(base + granularity, 31, 64));
    assert_ok(cuCtxSynchronize());
    pid_t child = start_other(part, &socket);
    message.number = descriptor;
    post(socket, &message, fetched ? -1 : descriptor);
    memset(&message, 0, sizeof message);
    receive(socket, &message);
    if (!strcmp(message.what, "cannot")) { /* the system forbids to look into another process */
        int status;
        waitpid(child, &status, 0);
        CONTRACT_SKIP("the system forbids to look into another process");
    }
    assert_string_equal(message.what, "used");
    close(descriptor);
    assert_ok(cuMemcpyDtoH(&word, base + 8, 4));
    assert_int_equal(word, 77);
    assert_ok(cuMemsetD32(base + granularity, 99, 64));
    assert_ok(cuCtxSynchronize());
    assert_ok(cuMemUnmap(base, 2 * granularity));
    assert_ok(cuMemRelease(handle));
    assert_ok(cuMemAddressFree(base, 2 * granularity));
    assert_true(free_bytes() <= before - 2 * granularity); /* the other one still has it */
    say(socket, "look again", 99);
    assert_told(socket, "looked");
    CUmemGenericAllocationHandle other = create(2 * granularity); /* must not get the same bytes */
    base = reserve(2 * granularity);
    assert_ok(cuMemMap(base, 2 * granularity, 0, other, 0));
    give_access(base, 2 * granularity);
    assert_ok(cuMemsetD32(base, 5, 2 * granularity / 4));
    assert_ok(cuCtxSynchronize());
    assert_ok(cuMemUnmap(base, 2 * granularity));
    assert_ok(cuMemRelease(other));
    assert_ok(cuMemAddressFree(base, 2 * granularity));
    say(socket, "let go", 0);
    assert_told(socket, "gone");
    end_other(child, socket);
    assert_int_equal(free_bytes(), before);
}

/* cuda.h, cuMemExportToShareableHandle, cuMemImportFromShareableHandle: the descriptor is sent over a
 * socket. */
static void test_handle(void **state)
{
    (void)state;
    share_handle("handle", false);
}

/* note: programs fetch the descriptor of another process with pidfd_getfd, where it is not sent. */
static void test_fetched_handle(void **state)
{
    (void)state;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    share_handle("fetch", true);
}

/* cuda.h, cuMemRelease: freed when all references, those of other processes included, are gone. That the
 * end of a process releases its own goes without saying, and is ours. */
static void test_other_dies(void **state)
{
    (void)state;
    int socket, descriptor, status;
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = create_exportable(&descriptor);
    CUdeviceptr base = reserve(2 * granularity);
    struct message message = {.what = "descriptor"};
    assert_ok(cuMemMap(base, 2 * granularity, 0, handle, 0));
    give_access(base, 2 * granularity);
    assert_ok(cuMemsetD32(base + granularity, 31, 64));
    assert_ok(cuCtxSynchronize());
    pid_t child = start_other("handle", &socket);
    post(socket, &message, descriptor);
    close(descriptor);
    assert_told(socket, "used");
    assert_ok(cuMemUnmap(base, 2 * granularity));
    assert_ok(cuMemRelease(handle));
    assert_ok(cuMemAddressFree(base, 2 * granularity));
    assert_true(free_bytes() <= before - 2 * granularity);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    close(socket);
    assert_int_equal(free_bytes(), before);
}

/* cuda.h, cuIpcGetMemHandle, cuIpcOpenMemHandle, cuIpcCloseMemHandle. */
static void test_legacy(void **state)
{
    (void)state;
    int socket;
    unsigned word = 0;
    struct message message = {.what = "memory"};
    CUdeviceptr ptr, own, vmm = reserve(granularity);
    CUipcMemHandle other;
    assert_ok(cuMemAlloc(&ptr, 4 << 20));
    assert_ok(cuMemsetD32(ptr, 41, 16));
    assert_ok(cuCtxSynchronize());
    assert_ok(cuIpcGetMemHandle(&message.memory, ptr));
    pid_t child = start_other("legacy", &socket);
    post(socket, &message, -1);
    assert_told(socket, "used");
    assert_ok(cuMemcpyDtoH(&word, ptr + 8, 4));
    assert_int_equal(word, 88);
    end_other(child, socket);
    /* guide: not in the process that made it */
    assert_int_equal(cuIpcOpenMemHandle(&own, message.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                     CUDA_ERROR_INVALID_CONTEXT);
    assert_ok(cuMemFree(ptr));
    /* Mapped memory has no such handle. */
    CUmemGenericAllocationHandle handle = create(granularity);
    assert_ok(cuMemMap(vmm, granularity, 0, handle, 0));
    give_access(vmm, granularity);
    assert_int_equal(cuIpcGetMemHandle(&other, vmm), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemUnmap(vmm, granularity));
    assert_ok(cuMemRelease(handle));
    assert_ok(cuMemAddressFree(vmm, granularity));
}

/* cuda.h, cuIpcGetEventHandle, cuIpcOpenEventHandle: the event was created for it. */
static void test_event(void **state)
{
    (void)state;
    int socket;
    struct message message = {.what = "event"};
    CUevent event, plain;
    CUstream stream;
    CUdeviceptr ptr;
    CUipcEventHandle none;
    assert_ok(cuMemAlloc(&ptr, 1 << 20));
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    assert_ok(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    assert_ok(cuMemsetD8Async(ptr, 1, 1 << 20, stream));
    assert_ok(cuEventRecord(event, stream));
    assert_ok(cuIpcGetEventHandle(&message.event, event));
    assert_int_not_equal(cuIpcGetEventHandle(&none, plain), CUDA_SUCCESS);
    pid_t child = start_other("event", &socket);
    post(socket, &message, -1);
    assert_told(socket, "used");
    end_other(child, socket);
    assert_ok(cuEventDestroy(event));
    assert_ok(cuEventDestroy(plain));
    assert_ok(cuStreamDestroy(stream));
    assert_ok(cuMemFree(ptr));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handle),     cmocka_unit_test(test_fetched_handle),
        cmocka_unit_test(test_other_dies), cmocka_unit_test(test_legacy),
        cmocka_unit_test(test_event),
    };
    self = argv[0];
    if (argc == 3)
        return other_process(argv[1], atoi(argv[2]));
    RUN_CONTRACT(tests);
}
