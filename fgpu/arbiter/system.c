/* The machine around the arbiter: its clock, and how it waits. */
#include <limits.h>
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "../src/fgpu.h"
#include "arbiter.h"

/* Leases are written by the host worker, as whose user the arbiter runs; root's are good everywhere. */
bool system_trusts(unsigned owner) { return owner == 0 || owner == geteuid(); }

uint64_t clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int system_wait(int epoll, struct epoll_event *events, int room, uint64_t until) {
    static int timer = -1;
    if (timer < 0) {
        struct epoll_event tick = {.events = EPOLLIN, .data.ptr = NULL};
        timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &tick);
    }
    struct itimerspec at = {.it_value = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
    return epoll_wait(epoll, events, room, -1);
}

void system_wake(_Atomic uint32_t *word, uint64_t key) {
    (void)key;
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
