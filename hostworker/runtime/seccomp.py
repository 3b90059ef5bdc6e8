"""The seccomp profile of sessions: which system calls of the kernel their processes may make, and with what arguments.

A system call is refused unless it is named. Named are those of Linux for x86-64, i386 and ARM that need no capability
which sessions lack; left out on top of these is what has been a way into kernels again and again and has a substitute:
io_uring, user namespaces, userfaultfd, the keyring, BPF, perf events, and sockets but those of the internet, Unix and
netlink. i386's socketcall, which passes a socket's family in memory where no filter sees it, is refused too.
"""

import functools
import json
from collections.abc import Mapping
from typing import Any, Final

ALLOWED: Final = """
    _llseek _newselect accept accept4 access adjtimex alarm arch_prctl arm_fadvise64_64 arm_sync_file_range bind
    breakpoint brk cacheflush cachestat capget capset chdir chmod chown chown32 clock_adjtime clock_adjtime64
    clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64 close
    close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old
    epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group
    faccessat faccessat2 fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown
    fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat
    fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait
    futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid
    getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp
    getpid getppid getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit getrusage
    getsockname getsockopt gettid gettimeofday getuid getuid32 getxattr getxattrat inotify_add_watch
    inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents
    io_pgetevents_time64 io_setup io_submit ioctl ioprio_get ioprio_set ipc kill landlock_add_rule
    landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link linkat listen listxattr
    listxattrat llistxattr lremovexattr lseek lsetxattr lstat lstat64 madvise map_shadow_stack membarrier
    memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2 modify_ldt
    mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend
    mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap
    name_to_handle_at nanosleep newfstatat open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2
    pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl pread64 preadv preadv2 prlimit64
    process_mrelease process_vm_readv process_vm_writev pselect6 pselect6_time64 ptrace pwrite64 pwritev
    pwritev2 read readahead readlink readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg
    remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction
    rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
    rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity
    sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64
    sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget
    semop semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg sendto set_robust_list
    set_thread_area set_tid_address set_tls setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups
    setgroups32 setitimer setpgid setpriority setregid setregid32 setresgid setresgid32 setresuid setresuid32
    setreuid setreuid32 setrlimit setsid setsockopt setuid setuid32 setxattr setxattrat shmat shmctl shmdt
    shmget shutdown sigaction sigaltstack signalfd signalfd4 sigpending sigprocmask sigreturn sigsuspend
    socketpair splice stat stat64 statfs statfs64 statx symlink symlinkat sync sync_file_range sync_file_range2
    syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64
    timer_settime timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime
    timerfd_settime64 times tkill truncate truncate64 ugetrlimit umask uname unlink unlinkat utime utimensat
    utimensat_time64 utimes vfork vmsplice wait4 waitid waitpid write writev
"""
ABSENT: Final = ("clone3", "io_uring_enter", "io_uring_register", "io_uring_setup")  # whose callers have a substitute
ENOSYS: Final = 38
SOCKET_FAMILIES: Final = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
NEW_NAMESPACES: Final = 0x7E020000  # the flags of clone(2) for namespaces
PERSONALITIES: Final = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)  # Linux, 32 bits, the version 2.6, both, and a query
INT: Final = 0xFFFFFFFF  # the bits that the kernel reads of an argument of type int
SUPPORT: Final = "name=seccomp"  # how an engine reports it
ENGINES_OWN: Final = frozenset({"default", "builtin"})  # the names of its profile where its operator gave none


def profile_for(info: Mapping[str, Any]) -> str:
    """Return the profile to give the engine that reports `info`; "" where it has none, or its operator's own."""
    for option in info.get("SecurityOptions") or ():
        name, _, profile = str(option).partition(",profile=")
        if name == SUPPORT:
            return session_profile() if not profile or profile in ENGINES_OWN else ""
    return ""


def problem(info: Mapping[str, Any]) -> str:
    """Return why sessions of the engine that reports `info` have no seccomp filter, or "" where they have one."""
    options = [str(option) for option in info.get("SecurityOptions") or ()]
    found = next((option for option in options if option.startswith(SUPPORT)), "")
    if not found:
        return "the kernel or the engine has no seccomp"
    return "the engine runs containers unconfined" if found.endswith("=unconfined") else ""


@functools.cache
def session_profile() -> str:
    """Return the profile as the engine takes it: JSON of Docker's format."""
    architectures = [
        {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
        {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"]},
    ]
    rules = [
        _allow(ALLOWED.split()),
        {"names": list(ABSENT), "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS},
        *(_allow(["socket"], mask=INT, equals=family) for family in SOCKET_FAMILIES),
        *(_allow(["personality"], mask=INT, equals=persona) for persona in PERSONALITIES),
        _allow(["clone"], mask=NEW_NAMESPACES, equals=0),
    ]
    return json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "archMap": architectures, "syscalls": rules})


def _allow(names: list[str], *, mask: int | None = None, equals: int = 0) -> dict[str, object]:
    """Return the rule that allows the calls; with `mask`, where these bits of the first argument are `equals`."""
    condition = {"index": 0, "value": mask, "valueTwo": equals, "op": "SCMP_CMP_MASKED_EQ"}
    return {"names": names, "action": "SCMP_ACT_ALLOW"} | ({"args": [condition]} if mask is not None else {})
