/* Shared state of the simulated host. Time is the real monotonic clock, or with FGPU_SIM_CLOCK=virtual a clock that
 * moves on only when all FGPU_SIM_PARTIES processes wait, so that tests of timing do not depend on the machine's load. */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SIM_MAGIC 0x53504746u

struct sim_config sim_config;
struct sim_state *sim;
static int state_fd = -1;
static struct sim_process *me;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static const char *setting(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static void read_gpu(char *line)
{
    int i = sim_config.count, sms = 64, at = 0;
    unsigned long long mib = 0;
    if (i == SIM_GPUS || sscanf(line, "gpu %47s memory_mib=%llu sms=%d name=%n", sim_config.gpu[i].uuid, &mib, &sms, &at) < 3)
        return;
    snprintf(sim_config.gpu[i].name, sizeof sim_config.gpu[i].name, "%s", at ? line + at : "Simulated GPU");
    sim_config.gpu[i].memory = mib << 20;
    sim_config.gpu[i].sms = sms;
    sim_config.count++;
}

static bool read_config(void)
{
    char line[256];
    int major = 12, minor = 8;
    FILE *file = fopen(setting("FGPU_SIM_CONFIG", "/run/fgpu-sim/gpus.conf"), "re");
    if (!file)
        return false;
    snprintf(sim_config.driver, sizeof sim_config.driver, "simulated");
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        sscanf(line, "driver %31s", sim_config.driver);
        sscanf(line, "cuda %d.%d", &major, &minor);
        sim_config.memory_limits |= strcmp(line, "memory_limits") == 0;
        read_gpu(line);
    }
    fclose(file);
    sim_config.cuda = major * 1000 + minor * 10;
    return true;
}

static void prepare(void)
{
    pthread_mutexattr_t attr;
    if (sim->magic == SIM_MAGIC)
        return;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&sim->lock, &attr);
    sim->now = 1000000000000ull;
    sim->magic = SIM_MAGIC;
}

/* The file stays open for ever: closing any descriptor of it would end this process' slot lock. */
static bool map_state(void)
{
    state_fd = open(setting("FGPU_SIM_STATE", "/run/fgpu-sim/state"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (state_fd < 0 || flock(state_fd, LOCK_EX))
        return false;
    int high = fcntl(state_fd, F_DUPFD_CLOEXEC, 300);
    state_fd = high >= 0 ? high : state_fd;
    if (ftruncate(state_fd, SIM_STATE_BYTES) == 0) {
        void *map = mmap(NULL, SIM_STATE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, state_fd, 0);
        sim = map == MAP_FAILED ? NULL : map;
    }
    if (sim)
        prepare();
    flock(state_fd, LOCK_UN);
    return sim != NULL;
}

static int shared_index(const char *uuid)
{
    for (int i = 0; i < SIM_GPUS; i++) {
        if (sim->gpu[i].uuid[0] == 0)
            strcpy(sim->gpu[i].uuid, uuid);
        if (strcmp(sim->gpu[i].uuid, uuid) == 0)
            return i;
    }
    return 0;
}

bool sim_open(void)
{
    pthread_mutex_lock(&opening);
    if (!sim && read_config() && map_state()) {
        sim_lock();
        for (int i = 0; i < sim_config.count; i++)
            sim_config.gpu[i].shared = shared_index(sim_config.gpu[i].uuid);
        sim_unlock();
    }
    pthread_mutex_unlock(&opening);
    return sim != NULL;
}

void sim_lock(void)
{
    if (pthread_mutex_lock(&sim->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&sim->lock);
}

void sim_unlock(void)
{
    pthread_mutex_unlock(&sim->lock);
}

static struct flock slot_lock(int process)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SIM_LOCK_BASE + process, .l_len = 1};
}

int sim_pid(int process)
{
    struct flock probe = slot_lock(process);
    if (&sim->process[process] == me)
        return getpid();
    if (fcntl(state_fd, F_GETLK, &probe) || probe.l_type == F_UNLCK)
        return -1;
    return probe.l_pid;
}

void sim_sweep(void)
{
    for (int i = 0; i < SIM_PROCESSES; i++)
        if (sim->process[i].taken && sim_pid(i) == -1)
            memset(&sim->process[i], 0, sizeof sim->process[i]);
}

static bool is_virtual(void)
{
    return getenv("FGPU_SIM_CLOCK") != NULL;
}

static void leave(void)
{
    if (!me)
        return;
    sim_lock();
    memset(me, 0, sizeof *me);
    me = NULL;
    sim->sequence++;
    sim_unlock();
    syscall(SYS_futex, &sim->sequence, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

bool sim_join(void)
{
    sim_lock();
    if (!me)
        sim_sweep();
    for (int i = 0; !me && i < SIM_PROCESSES; i++) {
        struct flock hold = slot_lock(i);
        if (sim->process[i].taken || fcntl(state_fd, F_SETLK, &hold))
            continue;
        me = &sim->process[i];
        memset(me, 0, sizeof *me);
        me->taken = 1;
        me->party = is_virtual();
        sim->joined += is_virtual();
        if (is_virtual())
            atexit(leave);
    }
    sim_unlock();
    return me != NULL;
}

void sim_after_fork(void)
{
    me = NULL;
}

uint64_t sim_used(int gpu)
{
    uint64_t sum = 0;
    for (int i = 0; i < SIM_PROCESSES; i++)
        sum += sim->process[i].taken ? sim->process[i].used[gpu] : 0;
    return sum;
}

bool sim_reserve(int gpu, uint64_t bytes)
{
    int shared = sim_config.gpu[gpu].shared;
    bool fits = false;
    sim_lock();
    for (int attempt = 0; me && !fits && attempt < 2; attempt++) {
        if (attempt)
            sim_sweep();
        uint64_t used = sim_used(shared);
        fits = used <= sim_config.gpu[gpu].memory && bytes <= sim_config.gpu[gpu].memory - used;
    }
    if (fits)
        me->used[shared] += bytes;
    sim_unlock();
    return fits;
}

void sim_release(int gpu, uint64_t bytes)
{
    sim_lock();
    if (me)
        me->used[sim_config.gpu[gpu].shared] -= bytes;
    sim_unlock();
}

static uint64_t real_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t sim_now(void)
{
    return is_virtual() ? __atomic_load_n(&sim->now, __ATOMIC_ACQUIRE) : real_now();
}

/* Move the virtual clock to the earliest sleeper, if every party sleeps. The caller holds the lock. */
static void step(void)
{
    uint64_t earliest = UINT64_MAX;
    if (sim->joined < atoi(setting("FGPU_SIM_PARTIES", "1")))
        return;
    for (int i = 0; i < SIM_PROCESSES; i++) {
        const struct sim_process *p = &sim->process[i];
        if (!p->taken || !p->party)
            continue;
        if (!p->waiting)
            return;
        earliest = p->wake < earliest ? p->wake : earliest;
    }
    if (earliest == UINT64_MAX || earliest <= sim->now)
        return;
    __atomic_store_n(&sim->now, earliest, __ATOMIC_RELEASE);
    sim->sequence++;
    syscall(SYS_futex, &sim->sequence, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void virtual_sleep(uint64_t when)
{
    const struct timespec patience = {0, 20000000};
    sim_lock();
    me->wake = when;
    me->waiting = 1;
    for (step(); sim->now < when; step()) {
        uint32_t seen = sim->sequence;
        sim_unlock();
        long rc = syscall(SYS_futex, &sim->sequence, FUTEX_WAIT, seen, &patience, NULL, 0);
        bool timed_out = rc && errno == ETIMEDOUT;
        sim_lock();
        if (timed_out)
            sim_sweep(); /* a party that died would be waited for for ever */
    }
    me->waiting = 0;
    sim_unlock();
}

void sim_sleep_until(uint64_t when)
{
    if (is_virtual() && me) {
        virtual_sleep(when);
        return;
    }
    for (uint64_t now = real_now(); now < when; now = real_now()) {
        struct timespec t = {(time_t)((when - now) / 1000000000u), (long)((when - now) % 1000000000u)};
        nanosleep(&t, NULL);
    }
}

void sim_spend(uint64_t ns)
{
    if (is_virtual() && me)
        virtual_sleep(sim_now() + ns);
}

uint64_t sim_run(int gpu, uint64_t earliest, uint64_t ns)
{
    struct sim_gpu *g = &sim->gpu[sim_config.gpu[gpu].shared];
    sim_lock();
    uint64_t start = earliest > g->busy_until ? earliest : g->busy_until, second;
    if (earliest <= g->busy_until || earliest <= sim_now())
        g->busy_until = start + ns; /* work that starts later, after a wait, stands in nobody's way until then */
    g->busy_total += ns;
    for (uint64_t at = start; at < start + ns; at = (second + 1) * 1000000000u) {
        second = at / 1000000000u;
        uint64_t end = (second + 1) * 1000000000u < start + ns ? (second + 1) * 1000000000u : start + ns;
        if (g->second[second % 4] != second)
            g->busy_ns[second % 4] = 0;
        g->second[second % 4] = second;
        g->busy_ns[second % 4] += end - at;
    }
    sim_unlock();
    return start + ns;
}
