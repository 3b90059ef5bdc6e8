/* The simulated host: GPUs whose memory and time are shared by all processes through one file. No NVIDIA hardware. */
#ifndef SIM_STATE_H
#define SIM_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    SIM_GPUS = 16, SIM_PROCESSES = 512, SIM_SLEEPERS = 1024, SIM_LIMITS = 64, SIM_CONTEXTS = 128, SIM_ITEMS = 4096, SIM_OBJECTS = 128,
    SIM_LOCK_BASE = 1 << 24
};

struct sim_config { /* the configuration file: what this process sees */
    char driver[32];
    int cuda; /* 12080 = 12.8 */
    bool memory_limits;
    uint64_t slice_ns, switch_ns, yield_ns; /* time-slicing; see README.md for where the defaults come from */
    int preempt;
    int count;
    struct {
        char uuid[48], name[64];
        uint64_t memory;
        int sms, shared; /* index into the shared state */
    } gpu[SIM_GPUS];
};
struct sim_gpu {
    char uuid[48];
    uint64_t at;               /* how far its work has been simulated */
    uint64_t slice, switching, yield; /* ns left of the time slice, of a switch of contexts, of waiting for an idle one */
    int32_t current, in_kernel; /* context on the GPU plus one; whether its kernel has begun */
    uint32_t changes, pad;     /* deaths: whoever sleeps until a predicted end looks again */
    uint64_t busy_total, second[4], busy_ns[4];
};
struct sim_item { uint64_t ready, left, end; }; /* a kernel: not before, ns left (0 = done), when it was done */
struct sim_context { /* of one process on one GPU: its work, one kernel at a time, first come first served */
    int32_t process, gpu; /* process plus one; 0 = free */
    uint64_t head, next;  /* items not done yet begin at `head` */
    uint64_t executed, second[4], busy_ns[4];
};
struct sim_sleeper { int32_t process, waiting; uint32_t word, pad; uint64_t wake, key; };
struct sim_process {
    int32_t taken, party, own_sleeper, pad;
    uint64_t used[SIM_GPUS];
};
struct sim_object { /* memory that several processes can hold; it lives while one does, or a descriptor of it is open */
    uint64_t bytes, holders[SIM_PROCESSES / 64];
    uint32_t gpu, generation, described, backed; /* generation: changes with each use; described: by a file; backed: its content is one */
};
struct sim_limit { char cgroup[256]; uint64_t soft, hard; };
struct sim_state {
    uint32_t magic, knocks;   /* `knocks` changes when the arbiter is to look: a message, a death */
    pthread_mutex_t lock;
    uint64_t now;             /* the virtual clock */
    int32_t joined, high;     /* sleepers ever used */
    uint32_t deaths, pad;
    struct sim_gpu gpu[SIM_GPUS];
    struct sim_limit limit[SIM_LIMITS];
    struct sim_process process[SIM_PROCESSES];
    struct sim_object object[SIM_OBJECTS];
    struct sim_sleeper sleeper[SIM_SLEEPERS];
    struct sim_context context[SIM_CONTEXTS];
    struct sim_item item[SIM_CONTEXTS][SIM_ITEMS];
};

extern struct sim_config sim_config;
extern struct sim_state *sim;

/* state.c */
bool sim_open(void);             /* read the configuration, map the state; idempotent */
bool sim_join(void);             /* take a process slot (CUDA processes, parties of the virtual clock) */
int sim_me(void);                /* this process' slot, -1 before it joined */
void sim_after_fork(void);
void sim_lock(void);
void sim_unlock(void);
void sim_sweep(void);            /* free what dead processes held; the caller holds the lock */
int sim_pid(int process);        /* its pid as seen from here, 0 if it is in a sibling's namespace */
bool sim_reserve(int gpu, uint64_t bytes);
void sim_release(int gpu, uint64_t bytes);
uint64_t sim_used(int gpu);      /* the caller holds the lock */

/* objects.c: what a process holds becomes an object, by its number; -1: none left */
int sim_object_new(int gpu, uint64_t bytes);
bool sim_object_hold(int object, uint32_t generation); /* 0: whichever generation */
void sim_object_drop(int object);
int sim_object_describe(int object); /* an open file that stands for it, and keeps it alive */
int sim_object_of(int descriptor);
int sim_object_content(int object, uint64_t bytes); /* the file that has its content; made if `bytes` says how long; -1: none */
void sim_object_forget(int process); /* it has ended; the caller holds the lock */
void sim_objects_collect(void);      /* what nobody holds is gone; the caller holds the lock */

/* clock.c: the real monotonic clock, or with FGPU_SIM_CLOCK=virtual one that moves on only when all wait */
bool sim_is_virtual(void);
uint64_t sim_now(void);
void sim_sleep_until(uint64_t when);
void sim_spend(uint64_t ns);     /* host time that a call costs on the virtual clock */
/* Wait until the word is not `seen`, somebody wakes the key, or it is `until`. Spurious returns are possible. */
void sim_wait(uint64_t key, const uint32_t *word, uint32_t seen, uint64_t until);
void sim_wake(uint64_t key);
int sim_reserve_sleeper(void);   /* for a thread about to be made: the clock waits for it from now on */
void sim_become_sleeper(int index);
int sim_take_sleeper(void);      /* the caller holds the lock, in these three */
void sim_forget_sleepers(int process);
void sim_wake_all(uint64_t key);

#define SIM_KNOCK 0x4b4e4f43ull

/* timeline.c: the GPUs' time */
struct sim_ticket { int context; uint64_t seq; }; /* of a launch; context 0: nothing to wait for */
void sim_await_room(int gpu);    /* for the next launches */
struct sim_ticket sim_launch(int gpu, uint64_t ready, uint64_t ns);
void sim_grow(struct sim_ticket ticket, uint64_t ns); /* a kernel launches more on the device, and ends after that */
bool sim_is_done(struct sim_ticket ticket, uint64_t *when);
void sim_wait_for(struct sim_ticket ticket);
void sim_wait_for_all(int gpu);
void sim_advance(int gpu);       /* by shared index; the caller holds the lock */
uint64_t sim_executed(int gpu);  /* by this process */
void sim_end_work(int process);  /* its kernels end with it; the caller holds the lock */

#endif
