/* A wall clock that is an hour behind, as before somebody sets it right: preloaded beside the hook. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) int clock_gettime(clockid_t which, struct timespec *out)
{
    long rc = syscall(SYS_clock_gettime, which, out);
    out->tv_sec -= which == CLOCK_REALTIME ? 3600 : 0;
    return (int)rc;
}
