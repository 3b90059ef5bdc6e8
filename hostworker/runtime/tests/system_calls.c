// Prints the error of each system call, 0 where it succeeds: "name errno" a line.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLONE_NEWUSER 0x10000000
#define AF_UNIX 1
#define AF_INET 2
#define AF_PACKET 17
#define AF_ALG 38
#define AF_VSOCK 40
#define SOCK_STREAM 1
#define SOCK_SEQPACKET 5
#define ADDR_NO_RANDOMIZE 0x0040000

static void report(const char *name, long result)
{
    printf("%s %d\n", name, result < 0 ? errno : 0);
    fflush(stdout);  // or a child would print it again
}

int main(void)
{
    char buffer[256] = {0};
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    report("fork", child);
    report("unshare", syscall(SYS_unshare, CLONE_NEWUSER));
    long cloned = syscall(SYS_clone, CLONE_NEWUSER | 17, 0, 0, 0, 0);
    if (cloned == 0)
        _exit(0);
    report("clone", cloned);
    report("clone3", syscall(SYS_clone3, buffer, 0));
    report("mount", syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, 0));
    report("bpf", syscall(SYS_bpf, 0, buffer, sizeof buffer));
    report("perf_event_open", syscall(SYS_perf_event_open, buffer, 0, -1, -1, 0));
    report("userfaultfd", syscall(SYS_userfaultfd, 1));
    report("keyctl", syscall(SYS_keyctl, 0, -3, 1));
    report("io_uring_setup", syscall(SYS_io_uring_setup, 1, buffer));
    report("vsock", syscall(SYS_socket, AF_VSOCK, SOCK_STREAM, 0));
    report("vsock_above_int", syscall(SYS_socket, AF_VSOCK | 1L << 32, SOCK_STREAM, 0));
    report("alg", syscall(SYS_socket, AF_ALG, SOCK_SEQPACKET, 0));
    report("packet", syscall(SYS_socket, AF_PACKET, 3, 0));
    report("inet", syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
    report("unix", syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0));
    report("personality", syscall(SYS_personality, ADDR_NO_RANDOMIZE));
    report("ptrace", syscall(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0));
    return 0;
}
