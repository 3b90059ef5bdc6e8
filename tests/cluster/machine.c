/* Preloaded: gives a process another machine. Its wall clock is TEST_CLOCK_OFFSET_S seconds off, while the monotonic
 * clock is left alone; and it may run on TEST_CPUS cores. The file TEST_MACHINE_FILE has two numbers, which may change
 * while the process runs: seconds by which its wall clock is off as well, and microseconds that each write to a disk
 * takes longer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const volatile long *knobs(void)
{
    static const volatile long none[2];
    static const volatile long *at;
    if (!at) {
        const char *path = getenv("TEST_MACHINE_FILE");
        int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, file, 0);
        if (file >= 0)
            close(file);
        at = mapped == MAP_FAILED ? none : mapped;
    }
    return at;
}

static long offset(void)
{
    static long seconds;
    static int is_read;
    if (!is_read) {
        const char *text = getenv("TEST_CLOCK_OFFSET_S");
        seconds = text ? atol(text) : 0;
        is_read = 1;
    }
    return seconds + knobs()[0];
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, at);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += offset();
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}

int sched_getaffinity(pid_t process, size_t size, cpu_set_t *cores)
{
    static int (*real)(pid_t, size_t, cpu_set_t *);
    const char *count = getenv("TEST_CPUS");
    if (!real)
        real = (int (*)(pid_t, size_t, cpu_set_t *))dlsym(RTLD_NEXT, "sched_getaffinity");
    if (!count)
        return real(process, size, cores);
    CPU_ZERO_S(size, cores);
    for (int core = 0; core < atoi(count); core++)
        CPU_SET_S(core, size, cores);
    return 0;
}

static void wait_for_disk(void)
{
    if (knobs()[1])
        usleep((useconds_t)knobs()[1]);
}

#define SLOW(type, name, parameters, ...) \
    type name parameters \
    { \
        static type(*real) parameters; \
        if (!real) \
            real = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
        wait_for_disk(); \
        return real(__VA_ARGS__); \
    }

SLOW(int, fsync, (int file), file)
SLOW(int, fdatasync, (int file), file)
SLOW(ssize_t, pwrite, (int file, const void *data, size_t size, off_t at), file, data, size, at)
SLOW(ssize_t, pwrite64, (int file, const void *data, size_t size, off64_t at), file, data, size, at)
SLOW(ssize_t, pwritev, (int file, const struct iovec *data, int count, off_t at), file, data, count, at)
SLOW(ssize_t, pread, (int file, void *data, size_t size, off_t at), file, data, size, at)
SLOW(ssize_t, pread64, (int file, void *data, size_t size, off64_t at), file, data, size, at)
