// Prints the error of each system call, 0 where it succeeds: "name errno" a line. Freestanding, for Linux: a C library for
// static programs would be compiled first, which takes longer than all that this tests.
#if defined(__x86_64__)
enum {
    WRITE = 1, CLONE = 56, EXIT = 60, WAIT4 = 61, UNSHARE = 272, CLONE3 = 435, MOUNT = 165, BPF = 321,
    PERF_EVENT_OPEN = 298, USERFAULTFD = 323, KEYCTL = 250, IO_URING_SETUP = 425, SOCKET = 41,
    PERSONALITY = 135, PTRACE = 101, EXIT_GROUP = 231,
    MKNODAT = 259, SETNS = 308, OPEN_BY_HANDLE_AT = 304, FANOTIFY_INIT = 300, INIT_MODULE = 175, KEXEC_LOAD =
    246, REBOOT = 169, SWAPON = 167, QUOTACTL = 179, SYSLOG = 103, CLOCK_SETTIME = 227, ADJTIMEX = 159,
    SETHOSTNAME = 170, CHROOT = 161, PIVOT_ROOT = 155, UMOUNT2 = 166, ACCT = 163, ADD_KEY = 248, REQUEST_KEY =
    249, FSOPEN = 430, OPEN_TREE = 428, MOVE_MOUNT = 429, SCHED_SETSCHEDULER = 144,
};
#elif defined(__aarch64__)
enum {
    WRITE = 64, CLONE = 220, EXIT = 93, WAIT4 = 260, UNSHARE = 97, CLONE3 = 435, MOUNT = 40, BPF = 280,
    PERF_EVENT_OPEN = 241, USERFAULTFD = 282, KEYCTL = 219, IO_URING_SETUP = 425, SOCKET = 198,
    PERSONALITY = 92, PTRACE = 117, EXIT_GROUP = 94,
    MKNODAT = 33, SETNS = 268, OPEN_BY_HANDLE_AT = 265, FANOTIFY_INIT = 262, INIT_MODULE = 105, KEXEC_LOAD =
    104, REBOOT = 142, SWAPON = 224, QUOTACTL = 60, SYSLOG = 116, CLOCK_SETTIME = 112, ADJTIMEX = 171,
    SETHOSTNAME = 161, CHROOT = 51, PIVOT_ROOT = 41, UMOUNT2 = 39, ACCT = 89, ADD_KEY = 217, REQUEST_KEY = 218,
    FSOPEN = 430, OPEN_TREE = 428, MOVE_MOUNT = 429, SCHED_SETSCHEDULER = 119,
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
#define SOCK_RAW 3
#define IPPROTO_ICMP 1
#define AT_FDCWD (-100)
#define S_IFBLK 0060000
#define S_IFCHR 0020000
#define DISK (8 << 8)
#define MEMORY (1 << 8 | 1)
#define ADJ_OFFSET 1
#define SCHED_FIFO 1

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
    report("raw", call(SOCKET, AF_INET, SOCK_RAW, IPPROTO_ICMP, 0, 0));
    report("mknod_disk", call(MKNODAT, AT_FDCWD, (long)"/tmp/disk", S_IFBLK | 0600, DISK, 0));
    report("mknod_memory", call(MKNODAT, AT_FDCWD, (long)"/tmp/memory", S_IFCHR | 0600, MEMORY, 0));
    report("setns", call(SETNS, 0, 0, 0, 0, 0));
    report("open_by_handle_at", call(OPEN_BY_HANDLE_AT, AT_FDCWD, zeros, 0, 0, 0));
    report("fanotify_init", call(FANOTIFY_INIT, 0, 0, 0, 0, 0));
    report("init_module", call(INIT_MODULE, zeros, 1, zeros, 0, 0));
    report("kexec_load", call(KEXEC_LOAD, 0, 0, 0, 0, 0));
    report("reboot", call(REBOOT, 0, 0, 0, 0, 0));
    report("swapon", call(SWAPON, (long)"/tmp/probe", 0, 0, 0, 0));
    report("quotactl", call(QUOTACTL, 0, 0, 0, 0, 0));
    report("syslog", call(SYSLOG, 3, zeros, sizeof buffer, 0, 0));
    report("clock_settime", call(CLOCK_SETTIME, 0, zeros, 0, 0, 0));
    buffer[0] = ADJ_OFFSET;
    report("adjtimex", call(ADJTIMEX, zeros, 0, 0, 0, 0));
    report("sethostname", call(SETHOSTNAME, (long)"x", 1, 0, 0, 0));
    report("chroot", call(CHROOT, (long)"/tmp", 0, 0, 0, 0));
    report("pivot_root", call(PIVOT_ROOT, (long)"/", (long)"/", 0, 0, 0));
    report("umount2", call(UMOUNT2, (long)"/proc", 0, 0, 0, 0));
    report("acct", call(ACCT, (long)"/tmp/probe", 0, 0, 0, 0));
    report("add_key", call(ADD_KEY, (long)"user", (long)"x", zeros, 1, -3));
    report("request_key", call(REQUEST_KEY, (long)"user", (long)"x", 0, -3, 0));
    report("fsopen", call(FSOPEN, (long)"tmpfs", 0, 0, 0, 0));
    report("open_tree", call(OPEN_TREE, AT_FDCWD, (long)"/", 1, 0, 0));
    report("move_mount", call(MOVE_MOUNT, 0, zeros, AT_FDCWD, (long)"/tmp", 4));
    report("sched_setscheduler", call(SCHED_SETSCHEDULER, 0, SCHED_FIFO, zeros, 0, 0));
    call(EXIT_GROUP, 0, 0, 0, 0, 0);
}
