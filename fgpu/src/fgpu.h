/* What the files of the hook share. Everything here is internal: only the driver's names leave the library. */
#ifndef FGPU_H
#define FGPU_H

#include <stdbool.h>

#include "symbols.h"

enum { MAX_GPUS = 16, MAX_ORDINALS = 64 };

/* limits.c: the root-owned file that says what this container may use. */
struct limit {
    char uuid[48];       /* GPU-xxxxxxxx-... or MIG-... */
    uint64_t mem_bytes;  /* the container's share of the device memory */
    uint64_t ctx_bytes;  /* charged once per process and GPU for its context */
    unsigned sm_points;  /* share of the SMs in hundredths of a percent, 10000 = not gated */
    unsigned phase_ms;   /* where in the gate's frame this container's turn begins */
};
struct limits {
    int count;
    struct limit gpu[MAX_GPUS];
};
/* Return NULL, or why the file is not acceptable; nothing in `out` may be used then. */
const char *limits_load(const char *path, struct limits *out);
int limits_find(const struct limits *limits, const char *uuid);

/* region.c: the accounting shared by all processes of the container. `gpu` is an index into the limits. */
const char *region_attach(const char *path);
bool region_join(void);
void region_forget_process(void);
CUresult region_charge(int gpu, uint64_t bytes, uint64_t limit);
void region_release(int gpu, uint64_t bytes);
bool region_used(int gpu, uint64_t *used);
int region_processes(int gpu, nvmlProcessV2 *out, int room);
void region_note(const char *text);
/* The gate's budget: how long to wait before launching (0 = go), and what the GPU was seen to do. */
bool region_gate_wait(int gpu, uint64_t now, uint64_t *wait_ns);
void region_gate_busy(int gpu, uint64_t start, uint64_t end);
void region_gate_throttled(int gpu, uint64_t ns);
unsigned region_gate_percent(int gpu, uint64_t now);

/* driver.c: the real driver behind us, and whether this process may use it. */
extern struct limits fgpu_limits;
extern void *fgpu_cuda, *fgpu_nvml; /* handles of the two libraries, NULL until bound */
void *fgpu_real_dlsym(void *handle, const char *name);
void *fgpu_real_dlvsym(void *handle, const char *name, const char *version);
bool fgpu_attach(void);          /* limits and region are good (any process) */
bool fgpu_bind_cuda(void);
bool fgpu_bind_nvml(void);
CUresult fgpu_ready(void);       /* and every visible GPU has a limit (CUDA processes) */
int fgpu_index(CUdevice device); /* index into the limits, -1 for none */
CUresult fgpu_here(int *gpu, CUdevice *device, CUcontext *context);

/* ledger.c: what this process holds, and under which handle. */
enum kind { HELD_POINTER, HELD_HANDLE, HELD_MAP, HELD_ARRAY, HELD_MIPMAP, HELD_POOL, HELD_GRAPH, HELD_EXEC, HELD_CTX };
struct hold {          /* a charge, shared by every handle that keeps the memory alive */
    int gpu;           /* -1: not on a GPU, never charged */
    unsigned refs;
    uint64_t bytes;
    uint64_t pool;     /* the pool behind a HELD_POOL charge */
    CUcontext context; /* whose end frees it; NULL where no context owns it */
};
CUresult hold_new(int gpu, uint64_t bytes, CUcontext context, struct hold **out);
CUresult hold_resize(struct hold *hold, uint64_t bytes);
void hold_undo(struct hold *hold);
void ledger_put(enum kind kind, uint64_t key, uint64_t size, struct hold *hold);
struct hold *ledger_find(enum kind kind, uint64_t key, int gpu);
struct hold *ledger_search(enum kind kind, uint64_t address, int gpu);
bool ledger_drop(enum kind kind, uint64_t key, uint64_t *size);
void ledger_drop_context(CUcontext context);
void ledger_share(enum kind from, uint64_t key, enum kind to, uint64_t other);
void ledger_each(enum kind kind, void (*visit)(struct hold *));
void ledger_forget(void);

/* pools.c, graphs.c */
void pools_reconcile(bool and_trim);
CUresult graph_claim(CUgraph graph, int gpu, uint64_t bytes);
CUresult graph_settle(CUresult rc, CUgraph graph, int gpu, uint64_t bytes);

/* gate.c: launches wait until the container's share of GPU time allows them. */
struct gate_pass {
    struct lane *lane;
    int mode;
    bool entered;
};
extern bool fgpu_gated; /* some GPU of this container is gated */
CUresult gate_enter(CUstream stream, struct gate_pass *pass);
void gate_leave(struct gate_pass *pass);
void gate_forget_context(CUcontext context);
void gate_forget_process(void);

/* clock.c */
uint64_t clock_now(void);
void clock_sleep(uint64_t ns);

/* route.c */
extern const char *const fgpu_names[S_COUNT];

#define KEY(value) ((uint64_t)(uintptr_t)(value))
#define ANYWHERE UINT64_MAX
#define CALL(name, ...) (REAL(name) ? REAL(name)(__VA_ARGS__) : CUDA_NOT_FOUND)
#define EXPORT __attribute__((visibility("default")))

#endif
