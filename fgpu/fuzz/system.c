/* Stands in for src/system.c and src/scope.c in the fuzz targets of the hook: files of the working folder, of any owner;
 * a clock that moves when it is told to, or the simulated driver's; no thread of the hook's own. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <time.h>

#include "session.h"

uint64_t fuzz_clock;
bool fuzz_simulated;
void (*fuzz_meanwhile)(void), (*fuzz_asleep)(void);
const char *fuzz_socket;

const char *system_limits_path(void) { return "limits.conf"; }
const char *system_region_path(void) { return "region"; }
const char *system_grant_path(void) { return "grant"; }
const char *system_socket_path(void) { return fuzz_socket; }
void *scope_entry(const char *name) { return (void)name, NULL; }

bool system_trusts(unsigned owner) { return (void)owner, true; }

uint64_t fgpuSimNow(void);
void fgpuSimSleepUntil(uint64_t);

uint64_t clock_now(void) { return fuzz_simulated ? fgpuSimNow() : fuzz_clock; }

uint64_t clock_coarse(void) {
    if (fuzz_meanwhile)
        fuzz_meanwhile();
    return clock_now();
}

void clock_sleep(uint64_t ns) {
    if (fuzz_simulated)
        fgpuSimSleepUntil(fgpuSimNow() + ns);
    else
        fuzz_clock += ns;
    if (fuzz_asleep)
        fuzz_asleep();
}

void system_sleep_on(const _Atomic uint32_t *word, uint32_t seen, uint64_t until, uint64_t key) {
    uint64_t now = clock_now();
    (void)key;
    if (atomic_load(word) == seen && until > now)
        clock_sleep(until - now);
}

void system_wake(_Atomic uint32_t *word, uint64_t key) { (void)word, (void)key; }
void system_sent(void) {}
bool system_thread(void *(*run)(void *)) { return (void)run, false; }

/* Somebody has the lock: the patience of 10 s is not waited for. */
int __wrap_pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until);
int __wrap_pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until) {
    (void)mutex, (void)clock, (void)until;
    return ETIMEDOUT;
}

/* While the hook asks the kernel, others of the session go on. */
int __real_fcntl(int fd, int how, ...), __wrap_fcntl(int fd, int how, ...);
int __wrap_fcntl(int fd, int how, ...) {
    va_list list;
    va_start(list, how);
    void *argument = va_arg(list, void *);
    va_end(list);
    if (fuzz_meanwhile && how == F_GETLK)
        fuzz_meanwhile();
    return __real_fcntl(fd, how, argument);
}
