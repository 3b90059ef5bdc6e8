/* What the files of the hook share. Everything here is internal: only the driver's names leave the library. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "abi.h"

enum { MAX_GPUS = 16, HOST_MEMORY = MAX_GPUS, HOLDERS = MAX_GPUS + 1, ALL_SMS = 10000 };

/* A function of the driver, declared where it is wrapped or called. The linker gathers all of them in one table. */
struct symbol {
    const char *name;
    void *wrapper; /* what programs get instead; NULL for what only the hook calls */
    void *real;    /* the driver's own; NULL until bound, and where this driver has none */
};
extern struct symbol __start_fgpu_symbols[] __attribute__((visibility("hidden")));
extern struct symbol __stop_fgpu_symbols[] __attribute__((visibility("hidden")));
#define EACH_SYMBOL(s) (struct symbol *s = __start_fgpu_symbols; s < __stop_fgpu_symbols; s++)

#define SYMBOL(name, wrapper) \
    static struct symbol symbol_##name __attribute__((section("fgpu_symbols"), used, aligned(8))) = { \
        #name, (void *)(uintptr_t)wrapper, NULL}
#define HELPER(name, params) \
    int name params; \
    SYMBOL(name, NULL)
#define WRAP(name, params) \
    __attribute__((visibility("default"))) int name params; \
    SYMBOL(name, name); \
    int name params
#define REAL(name) ((__typeof__(&name))(uintptr_t)symbol_##name.real)
#define CALL(name, args) (REAL(name) ? REAL(name) args : CUDA_NOT_FOUND)
#define KEY(value) ((uint64_t)(uintptr_t)(value))
#define PER_THREAD(stream) ((stream) ? (stream) : STREAM_PER_THREAD)

/* What a child of fork must not inherit: zero there again, as at the start. Its memory is its parent's to give back. */
#define PER_PROCESS __attribute__((section("fgpu_process")))

/* Hold the mutex until the end of the block. */
#define LOCKED(mutex) \
    pthread_mutex_t *locked __attribute__((cleanup(unlock_mutex))) = &mutex; \
    pthread_mutex_lock(locked)
static inline void unlock_mutex(pthread_mutex_t **locked) { pthread_mutex_unlock(*locked); }

static inline uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* limits.c: the root-owned file that says what this container may use. */
struct limit {
    char uuid[48];              /* GPU-xxxxxxxx-... or MIG-... */
    _Atomic uint64_t mem_bytes; /* the container's share of the device memory */
    _Atomic uint64_t ctx_bytes; /* charged once per process and GPU for its context */
    _Atomic unsigned sm_points; /* share of the SMs in hundredths of a percent, ALL_SMS = not gated */
    unsigned phase_ms;          /* where in the gate's frame this container's turn begins */
};
struct limits {
    int count;
    bool burst;                    /* the session may use what others leave idle */
    _Atomic uint64_t pinned_bytes; /* page-locked host memory of all its processes; 0 = not bounded */
    struct limit gpu[MAX_GPUS];
};
/* Return NULL, or why the file is not acceptable; nothing in `out` may be used then. */
const char *limits_load(const char *path, struct limits *out);
int limits_find(const struct limits *limits, const char *uuid); /* -1: none */
/* reload.c: have `fgpu_limits` say what the file says by now, where that is another size of the same share. */
void limits_refresh(void);
void limits_poll(void); /* the same, but for what was read within the last 10 ms */

/* region.c: the accounting shared by all processes of the container. `gpu`: an index of the limits, or HOST_MEMORY. */
const char *region_attach(const char *path);
bool region_join(void);
CUresult region_change(int gpu, uint64_t from, uint64_t to); /* of what this process holds; gpu -1 costs nothing */
bool region_used(int gpu, uint64_t *used);
/* Memory that a process offers to others is charged once for the session, as long as any of its processes holds it. */
void region_publish(uint64_t id, int gpu, uint64_t bytes); /* what this process holds is known to others by that id */
/* Hold so much, which others hold on that GPU, at no cost for the session. False: nobody does. */
bool region_share(uint64_t id, int gpu, uint64_t bytes);
void region_unshare(uint64_t id);
int region_processes(int gpu, nvmlProcessV2 *out, int room); /* -1: the region is garbled */
void region_note(const char *text);
/* The gate's budget: how long to wait before launching (0 = go), and what the GPU was seen to do. */
bool region_gate_wait(int gpu, uint64_t now, uint64_t *wait_ns);
void region_gate_busy(int gpu, uint64_t start, uint64_t end, bool charge);
unsigned region_gate_percent(int gpu, uint64_t now);
/* When the arbiter of the host last was in touch with a process of the session. */
void region_governed(uint64_t now);
uint64_t region_governed_at(uint64_t now);

/* driver.c: the real driver behind us, and whether this process may use it. */
struct place { /* where a request goes */
    int gpu;
    CUdevice device;
    CUcontext context;
};
extern struct limits fgpu_limits;
extern bool fgpu_gated;          /* some GPU of this container is gated */
bool fgpu_attach(void);          /* limits and region are good (any process) */
bool fgpu_bind(const char *library);
CUresult fgpu_ready(void);       /* and every visible GPU has a limit (CUDA processes) */
int fgpu_index(CUdevice device); /* index into the limits, -1 for none */
int fgpu_host(void);             /* HOST_MEMORY, or -1 where that is not bounded */
CUresult fgpu_account(const CUlocation *where, int type, int *gpu); /* who pays for memory that lies there */
CUresult fgpu_place(CUstream stream, struct place *out); /* NULL: the current context's */

/* ledger.c: what this process holds, and under which handle. */
enum kind {
    HELD_POINTER, HELD_HANDLE, HELD_MAP, HELD_ARRAY, HELD_MIPMAP, HELD_POOL, HELD_GRAPH, HELD_EXEC, HELD_PINNED,
    HELD_EXPORT, HELD_IPC, HELD_EXTERNAL, HELD_LIMIT, HELD_CAPTURE,
    KINDS
};
struct hold {          /* a charge, shared by every handle that keeps the memory alive */
    int gpu;           /* -1: never charged */
    bool imported;     /* of a size that is not known: charged for what is mapped */
    unsigned refs;
    uint64_t bytes;
    CUcontext context; /* whose end frees it; NULL where no context owns it */
    CUmemPool pool;    /* the pool behind a HELD_POOL charge */
};
CUresult hold_new(int gpu, uint64_t bytes, CUcontext context, struct hold **out);
CUresult hold_open(uint64_t share, int gpu, uint64_t bytes, CUcontext context, struct hold **out, bool *shared);
CUresult hold_resize(struct hold *hold, uint64_t bytes);
CUresult hold_settle(CUresult rc, struct hold *hold, enum kind kind, uint64_t key);
void ledger_put(enum kind kind, uint64_t key, uint64_t size, struct hold *hold);
struct hold *ledger_find(enum kind kind, uint64_t key);
struct hold *ledger_find_address(enum kind kind, uint64_t address);
bool ledger_drop(enum kind kind, uint64_t key, uint64_t *size);
bool ledger_drop_all(enum kind kind, uint64_t key);
void ledger_drop_context(CUcontext context);
void ledger_share(enum kind from, uint64_t key, enum kind to, uint64_t other);
bool ledger_mark(enum kind kind, uint64_t key, uint64_t share); /* leave the share when the entry goes */
void ledger_each(enum kind kind, CUresult (*visit)(struct hold *, bool), bool how);

/* pools.c: charge every pool what it has reserved. */
void pools_reconcile(bool and_trim);
CUresult capture_begun(CUresult rc, CUstream stream); /* into a graph of its own */
CUresult capture_ended(CUresult rc, CUstream stream, const CUgraph *out); /* `out` NULL: with its stream */

/* flight.c: what this process has in flight, read from events around its launches. The caller holds the gate's lock. */
struct queue;
struct queue *flight_of(const struct place *here, CUstream stream); /* NULL: no memory for it */
void flight_poll(int gpu, struct queue *queue, uint64_t now);  /* this queue; now and then all of the GPU's */
void flight_poll_all(void); /* by the helper, which puts events behind launches that have none, without the lock */
bool flight_is_helped(void);                                   /* for such an event */
bool flight_waits_elsewhere(int gpu, uint64_t now);            /* all in flight, for what is not on the GPU */
bool flight_is_full(struct queue *queue, uint64_t now);
bool flight_is_alone(const struct queue *queue);               /* nothing else of the GPU is in flight */
bool flight_any(int gpu, uint64_t now);                        /* on the GPU, or about to be */
bool flight_is_held(int gpu);                                  /* or waiting for something else */
uint64_t flight_ahead(int gpu, uint64_t now);                  /* ns until all is done, as far as can be told */
/* These return an event to record, NULL for none, in that stream and before anything else is sent there. */
CUevent flight_enter(struct queue *queue, bool for_turns, uint64_t now);
CUevent flight_leave(struct queue *queue);
CUevent flight_wait(struct queue *queue, uint64_t now);        /* its stream is about to be told to */
void flight_record(struct queue *queue, CUstream stream, CUevent event); /* without the lock */
bool flight_begins(const struct queue *queue);                 /* an event is recorded that must come first */
void flight_await_helper(CUcontext context, CUstream stream);  /* it records no event in the context, or NULL: stream */
bool flight_forget_stream(CUstream stream);                    /* whether its caller may end it now */
void flight_forget_context(CUcontext context);
bool flight_is_capturing(CUstream stream);

/* turn.c: the arbiter of the host, and when it lets this session launch. The caller holds the gate's lock. */
void turn_attach(void);                     /* once per process, by whoever */
bool turn_is_governed(uint64_t now);        /* an arbiter lives; connected to at once, or tried for once a second */
uint64_t turn_pause(uint64_t now);          /* ns until it may have our connection; 0: it has */
bool turn_allows(int gpu, uint64_t at);     /* a kernel that begins then */
void turn_tell(int gpu, unsigned flags);    /* STATE_..., sent where it has changed */
unsigned turn_told(int gpu);
uint32_t turn_word(int gpu);
void turn_sleep(int gpu, uint32_t word, uint64_t until); /* without the lock: until the turn changes, or until then */
void turn_in_child(void);

#define PATIENCE_NS 10000000000ull /* with what may be waiting for the program to go on */

/* gate.c: nobody touches the driver's events and streams meanwhile. */
void gate_hold(void), gate_let_go(void);
bool gate_is_stopped(void); /* the helper asks nothing more of the driver */

/* route.c: glibc's own lookup, past ours. */
#define CUDA_LIBRARY "libcuda.so.1"
#define NVML_LIBRARY "libnvidia-ml.so.1"
void *fgpu_real_dlsym(void *handle, const char *name);
bool route_guards(const char *name);                 /* programs get ours, or none */
void *route_pick(const char *name, int versioned);   /* where a dlsym or dlvsym of that name goes on */

/* scope.c: that lookups find us, whatever comes before us. */
void *scope_entry(const char *name); /* ours, of a function of the loader's; NULL: not one that we stand for */

/* system.c */
extern const char *system_limits_path(void), *system_region_path(void);
extern const char *system_grant_path(void), *system_socket_path(void);
bool system_trusts(unsigned owner);
uint64_t clock_now(void);
uint64_t clock_coarse(void); /* some ms behind, and cheap */
void clock_sleep(uint64_t ns);
/* Sleep while the word is `seen`, at most until then; the key names it on the simulated clock. */
void system_sleep_on(const _Atomic uint32_t *word, uint32_t seen, uint64_t until, uint64_t key);
void system_wake(_Atomic uint32_t *word, uint64_t key);
void system_sent(void);                     /* a message to the arbiter */
bool system_thread(void *(*run)(void *));   /* detached, no signals */
