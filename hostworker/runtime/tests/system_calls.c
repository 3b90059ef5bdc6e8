// Prints the error of each system call, 0 where it succeeds: "name errno" a line. Freestanding, for Linux: a C library for
// static programs would be compiled first, which takes longer than all that this tests.
#if defined(__x86_64__)
enum {
    WRITE = 1, CLONE = 56, EXIT = 60, WAIT4 = 61, UNSHARE = 272, CLONE3 = 435, MOUNT = 165, BPF = 321,
    PERF_EVENT_OPEN = 298, USERFAULTFD = 323, KEYCTL = 250, IO_URING_SETUP = 425, SOCKET = 41,
    PERSONALITY = 135, PTRACE = 101, EXIT_GROUP = 231,
};
#elif defined(__aarch64__)
enum {
    WRITE = 64, CLONE = 220, EXIT = 93, WAIT4 = 260, UNSHARE = 97, CLONE3 = 435, MOUNT = 40, BPF = 280,
    PERF_EVENT_OPEN = 241, USERFAULTFD = 282, KEYCTL = 219, IO_URING_SETUP = 425, SOCKET = 198,
    PERSONALITY = 92, PTRACE = 117, EXIT_GROUP = 94,
};
#endif

#define CLONE_NEWUSER 0x10000000
#define SIGCHLD 17
#define AF_UNIX 1
#define AF_INET 2
#define AF_PACKET 17
#define AF_ALG 38
#define AF_VSOCK 40
#define SOCK_STREAM 1
#define SOCK_SEQPACKET 5
#define ADDR_NO_RANDOMIZE 0x0040000

// Returns the result of a system call, or its error as a negative number.
static long call(long number, long a, long b, long c, long d, long e)
{
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d, x4 __asm__("x4") = e;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
#endif
}

static void report(const char *name, long result)
{
    char line[64];
    long error = result < 0 ? -result : 0, length = 0;
    for (; name[length]; length++)
        line[length] = name[length];
    line[length++] = ' ';
    for (long unit = 100; unit; unit /= 10)
        if (error >= unit || unit == 1)
            line[length++] = (char)('0' + error / unit % 10);
    line[length++] = '\n';
    call(WRITE, 1, (long)line, length, 0, 0);
}

// Reports a clone with these flags, whose child ends at once.
static void report_clone(const char *name, long flags)
{
    long child = call(CLONE, flags | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        call(EXIT, 0, 0, 0, 0, 0);
    if (child > 0)
        call(WAIT4, child, 0, 0, 0, 0);
    report(name, child);
}

void _start(void);
void _start(void)
{
    static char buffer[256];
    long zeros = (long)buffer;
    report_clone("fork", 0);
    report("unshare", call(UNSHARE, CLONE_NEWUSER, 0, 0, 0, 0));
    report_clone("clone", CLONE_NEWUSER);
    report("clone3", call(CLONE3, zeros, 0, 0, 0, 0));
    report("mount", call(MOUNT, (long)"none", (long)"/tmp", (long)"tmpfs", 0, 0));
    report("bpf", call(BPF, 0, zeros, sizeof buffer, 0, 0));
    report("perf_event_open", call(PERF_EVENT_OPEN, zeros, 0, -1, -1, 0));
    report("userfaultfd", call(USERFAULTFD, 1, 0, 0, 0, 0));
    report("keyctl", call(KEYCTL, 0, -3, 1, 0, 0));
    report("io_uring_setup", call(IO_URING_SETUP, 1, zeros, 0, 0, 0));
    report("vsock", call(SOCKET, AF_VSOCK, SOCK_STREAM, 0, 0, 0));
    report("vsock_above_int", call(SOCKET, AF_VSOCK | 1L << 32, SOCK_STREAM, 0, 0, 0));
    report("alg", call(SOCKET, AF_ALG, SOCK_SEQPACKET, 0, 0, 0));
    report("packet", call(SOCKET, AF_PACKET, 3, 0, 0, 0));
    report("inet", call(SOCKET, AF_INET, SOCK_STREAM, 0, 0, 0));
    report("unix", call(SOCKET, AF_UNIX, SOCK_STREAM, 0, 0, 0));
    report("personality", call(PERSONALITY, ADDR_NO_RANDOMIZE, 0, 0, 0, 0));
    report("ptrace", call(PTRACE, 0, 0, 0, 0, 0));  // of the parent
    call(EXIT_GROUP, 0, 0, 0, 0, 0);
}
