/* Preloaded: gives a process another machine. Its wall clock is TEST_CLOCK_OFFSET_S seconds off, while the monotonic
 * clock is left alone; and it may run on TEST_CPUS cores. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long offset(void)
{
    static long seconds;
    static int is_read;
    if (!is_read) {
        const char *text = getenv("TEST_CLOCK_OFFSET_S");
        seconds = text ? atol(text) : 0;
        is_read = 1;
    }
    return seconds;
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
