/* The simulated host: GPUs whose memory and time are shared by all processes through one file. No NVIDIA hardware. */
#ifndef SIM_STATE_H
#define SIM_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { SIM_GPUS = 16, SIM_PROCESSES = 512, SIM_LIMITS = 64, SIM_STATE_BYTES = 1 << 18, SIM_LOCK_BASE = 1 << 24 };

struct sim_config { /* the configuration file: what this process sees */
    char driver[32];
    int cuda; /* 12080 = 12.8 */
    bool memory_limits;
    int count;
    struct {
        char uuid[48], name[64];
        uint64_t memory;
        int sms, shared; /* index into the shared state */
    } gpu[SIM_GPUS];
};
struct sim_gpu {
    char uuid[48];
    uint64_t busy_until, busy_total; /* the timeline: one kernel at a time, first come, first served */
    uint64_t second[4], busy_ns[4];
};
struct sim_process {
    int32_t taken, waiting, party, pad;
    uint64_t wake;
    uint64_t used[SIM_GPUS];
};
struct sim_limit { char cgroup[256]; uint64_t soft, hard; };
struct sim_state {
    uint32_t magic, sequence; /* `sequence` counts steps of the virtual clock; sleepers wait on it */
    pthread_mutex_t lock;
    uint64_t now;             /* the virtual clock */
    int32_t joined, pad;
    struct sim_gpu gpu[SIM_GPUS];
    struct sim_limit limit[SIM_LIMITS];
    struct sim_process process[SIM_PROCESSES];
};
_Static_assert(sizeof(struct sim_state) <= SIM_STATE_BYTES, "state must fit its file");

extern struct sim_config sim_config;
extern struct sim_state *sim;

bool sim_open(void);             /* read the configuration, map the state; idempotent */
bool sim_join(void);             /* take a process slot (CUDA processes) */
void sim_after_fork(void);
void sim_lock(void);
void sim_unlock(void);
void sim_sweep(void);            /* free what dead processes held; the caller holds the lock */
int sim_pid(int process);        /* its pid as seen from here, 0 if it is in a sibling's namespace */
bool sim_reserve(int gpu, uint64_t bytes);
void sim_release(int gpu, uint64_t bytes);
uint64_t sim_used(int gpu);      /* the caller holds the lock */
uint64_t sim_now(void);
void sim_sleep_until(uint64_t when);
void sim_spend(uint64_t ns);     /* host time that a call costs on the virtual clock */
uint64_t sim_run(int gpu, uint64_t earliest, uint64_t ns); /* put work on the timeline, return when it ends */

#endif
