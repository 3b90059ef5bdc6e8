/* The simulated host's clock. The virtual one moves on only when all threads that take part in it wait, and all
 * FGPU_SIM_PARTIES processes have come, so that tests of timing do not depend on the machine's load. */
#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

static __thread struct sim_sleeper *mine;
static __thread int mine_of = -1; /* the process that `mine` is of: a child of fork has none */

static long futex(uint32_t *word, int how, uint32_t value, const struct timespec *patience)
{
    return syscall(SYS_futex, word, how, value, patience, NULL, 0);
}

bool sim_is_virtual(void)
{
    return getenv("FGPU_SIM_CLOCK") != NULL;
}

static uint64_t real_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t sim_now(void)
{
    return sim && sim_is_virtual() ? __atomic_load_n(&sim->now, __ATOMIC_ACQUIRE) : real_now();
}

static void rouse(struct sim_sleeper *sleeper)
{
    __atomic_fetch_add(&sleeper->word, 1, __ATOMIC_RELEASE);
    futex(&sleeper->word, FUTEX_WAKE, 1, NULL);
}

/* Move the virtual clock to the earliest sleeper, if everybody sleeps. The caller holds the lock. */
static void step(void)
{
    const char *parties = getenv("FGPU_SIM_PARTIES");
    uint64_t earliest = UINT64_MAX;
    if (sim->joined < (parties && *parties ? atoi(parties) : 1))
        return;
    for (int i = 0; i < sim->high; i++) {
        const struct sim_sleeper *s = &sim->sleeper[i];
        if (s->process && !s->waiting)
            return;
        if (s->process)
            earliest = s->wake < earliest ? s->wake : earliest;
    }
    if (earliest == UINT64_MAX || earliest <= sim->now)
        return;
    __atomic_store_n(&sim->now, earliest, __ATOMIC_RELEASE);
    for (int i = 0; i < sim->high; i++)
        if (sim->sleeper[i].process && sim->sleeper[i].wake <= earliest && &sim->sleeper[i] != mine)
            rouse(&sim->sleeper[i]);
}

/* The caller holds the lock. */
int sim_take_sleeper(void)
{
    for (int i = 0; i < SIM_SLEEPERS; i++)
        if (!sim->sleeper[i].process) {
            uint32_t word = sim->sleeper[i].word;
            sim->sleeper[i] = (struct sim_sleeper){.process = sim_me() + 1, .word = word};
            sim->high = i < sim->high ? sim->high : i + 1;
            return i;
        }
    return -1;
}

int sim_reserve_sleeper(void)
{
    sim_lock();
    int index = sim_is_virtual() && sim_me() >= 0 ? sim_take_sleeper() : -1;
    sim_unlock();
    return index;
}

void sim_become_sleeper(int index)
{
    mine = index < 0 ? NULL : &sim->sleeper[index];
    mine_of = sim_me();
}

void sim_forget_sleepers(int process)
{
    for (int i = 0; i < sim->high; i++)
        if (sim->sleeper[i].process == process + 1)
            sim->sleeper[i].process = 0;
}

/* The process' first sleeper was taken when it joined; other threads of its own take one when they first sleep. */
static void ensure_mine(void)
{
    struct sim_process *process = &sim->process[sim_me()];
    if (mine && mine_of == sim_me())
        return;
    sim_become_sleeper(process->own_sleeper > 0 ? process->own_sleeper - 1 : sim_take_sleeper());
    process->own_sleeper = 0;
}

static void virtual_wait(uint64_t key, const uint32_t *word, uint32_t seen, uint64_t until)
{
    const struct timespec patience = {0, 20000000};
    sim_lock();
    ensure_mine();
    if (!mine || (word && __atomic_load_n(word, __ATOMIC_ACQUIRE) != seen)) {
        sim_unlock();
        return;
    }
    mine->key = key;
    mine->wake = until;
    mine->waiting = 1;
    for (step(); mine->waiting && sim->now < until; step()) {
        uint32_t before = mine->word;
        sim_unlock();
        long rc = futex(&mine->word, FUTEX_WAIT, before, &patience);
        bool timed_out = rc && errno == ETIMEDOUT;
        sim_lock();
        if (timed_out)
            sim_sweep(); /* a party that died would be waited for for ever */
    }
    mine->waiting = 0;
    mine->key = 0;
    sim_unlock();
}

void sim_wait(uint64_t key, const uint32_t *word, uint32_t seen, uint64_t until)
{
    if (sim_is_virtual() && sim_me() >= 0)
        virtual_wait(key, word, seen, until);
}

void sim_wake_all(uint64_t key)
{
    for (int i = 0; i < sim->high; i++)
        if (sim->sleeper[i].process && sim->sleeper[i].waiting && sim->sleeper[i].key == key) {
            sim->sleeper[i].waiting = 0;
            rouse(&sim->sleeper[i]);
        }
}

void sim_wake(uint64_t key)
{
    if (!sim || !sim_is_virtual())
        return;
    sim_lock();
    sim_wake_all(key);
    sim_unlock();
}

void sim_sleep_until(uint64_t when)
{
    if (sim_is_virtual() && sim_me() >= 0) {
        virtual_wait(0, NULL, 0, when);
        return;
    }
    for (uint64_t now = real_now(); now < when; now = real_now()) {
        struct timespec t = {(time_t)((when - now) / 1000000000u), (long)((when - now) % 1000000000u)};
        nanosleep(&t, NULL);
    }
}

void sim_spend(uint64_t ns)
{
    if (sim_is_virtual() && sim_me() >= 0)
        virtual_wait(0, NULL, 0, sim_now() + ns);
}
