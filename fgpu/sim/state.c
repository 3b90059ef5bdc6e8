/* Shared state of the simulated host: its configuration, its processes, and the memory that they hold. */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIM_MAGIC 0x53504748u

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
    unsigned slice = 2000, cost = 100, yield = 0;
    snprintf(sim_config.driver, sizeof sim_config.driver, "simulated");
    sim_config.preempt = 1;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        sscanf(line, "driver %31s", sim_config.driver);
        sscanf(line, "cuda %d.%d", &major, &minor);
        sscanf(line, "timeslice slice_us=%u switch_us=%u yield_us=%u preempt=%d", &slice, &cost, &yield, &sim_config.preempt);
        sim_config.memory_limits |= strcmp(line, "memory_limits") == 0;
        read_gpu(line);
    }
    fclose(file);
    sim_config.cuda = major * 1000 + minor * 10;
    sim_config.slice_ns = (slice ? slice : 1) * 1000ull;
    sim_config.switch_ns = cost * 1000ull;
    sim_config.yield_ns = yield * 1000ull;
    return true;
}

static void prepare(void)
{
    pthread_mutexattr_t attr;
    if (sim->magic == SIM_MAGIC)
        return;
    if (sim->magic) /* of another version */
        memset(sim, 0, offsetof(struct sim_state, item));
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
    if (ftruncate(state_fd, sizeof *sim) == 0) {
        void *map = mmap(NULL, sizeof *sim, PROT_READ | PROT_WRITE, MAP_SHARED, state_fd, 0);
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
        if (sim->process[i].taken && sim_pid(i) == -1) {
            sim_end_work(i);
            sim_forget_sleepers(i);
            sim_object_forget(i);
            memset(&sim->process[i], 0, sizeof sim->process[i]);
            sim->deaths++;
            sim->knocks++;
            sim_wake_all(SIM_KNOCK);
        }
    sim_objects_collect();
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
        me->party = sim_is_virtual();
        sim->joined += me->party;
        me->own_sleeper = me->party ? sim_take_sleeper() + 1 : 0;
    }
    sim_unlock();
    return me != NULL;
}

int sim_me(void)
{
    return me ? (int)(me - sim->process) : -1;
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
    for (int i = 0; i < SIM_OBJECTS; i++)
        sum += sim->object[i].gpu == (uint32_t)gpu ? sim->object[i].bytes : 0;
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
