/* The SM share. Launches wait while the container's GPU time of the current 100 ms frame is used up. How long the GPU
 * worked is read from events around the launches; the time is added up for the container as the union of what its
 * processes saw, and overdrawn time is paid back from the next frames, so kernels longer than a frame come out right.
 *
 * A lane is a stream of a context. Its launches are measured in batches, each closed by an event. At most a few batches
 * are in flight, which bounds how far a program can run ahead of its budget. A batch starts where the one before it
 * ended if the stream was still busy then, otherwise at an event of its own, so a pause of the program is free. */
#include <string.h>

#include "fgpu.h"

HELPER(cuThreadExchangeStreamCaptureMode, (int *));
HELPER(cuStreamIsCapturing, (CUstream, int *));
HELPER(cuCtxPushCurrent_v2, (CUcontext));
HELPER(cuCtxPopCurrent_v2, (CUcontext *));
HELPER(cuEventCreate, (CUevent *, unsigned));
HELPER(cuEventDestroy_v2, (CUevent));
HELPER(cuEventRecord, (CUevent, CUstream));
HELPER(cuEventQuery, (CUevent));
HELPER(cuEventElapsedTime, (float *, CUevent, CUevent));

enum { LANES = 32, RING = 5, MOST_LAUNCHES = 64, BATCH_NS = 1000000, POLL_NS = 200000, FULL_NS = 250000 };
#define PATIENCE_NS 10000000000ull
#define SLICE_NS 200000000u

struct batch {
    CUevent begin, end;
    uint64_t start; /* host time */
    unsigned launches;
    bool chained; /* starts at the end of the batch before */
};
struct lane {
    CUcontext context;
    CUstream stream;
    pthread_t thread; /* the per-thread stream is another one in every thread */
    int gpu;
    uint64_t last_end, touched;
    unsigned entering;    /* threads between the gate and the end of their launch */
    uint64_t first, next; /* batches in flight: ring[first % RING] ... ring[next % RING - 1] */
    bool open;            /* ring[next % RING] has launches that no event closes yet */
    struct batch ring[RING];
};

PER_PROCESS static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
PER_PROCESS static struct lane lanes[LANES];
static uint64_t launch_ns[MAX_GPUS]; /* running mean of the GPU time per launch */
static uint64_t polled[MAX_GPUS];

static struct batch *at(struct lane *lane, uint64_t position) { return &lane->ring[position % RING]; }

static void report(struct lane *lane, uint64_t start, uint64_t end) {
    region_gate_busy(lane->gpu, start, end);
    lane->last_end = most(lane->last_end, end);
}

static void finish(struct lane *lane, const struct batch *batch, uint64_t now) {
    float ms = 0;
    CUevent from = batch->chained ? at(lane, lane->first + RING - 1)->end : batch->begin;
    uint64_t start = batch->chained ? lane->last_end : most(batch->start, lane->last_end);
    uint64_t busy = CALL(cuEventElapsedTime, (&ms, from, batch->end)) ? now - start : (uint64_t)((double)ms * 1e6);
    report(lane, start, least(start + busy, now));
    launch_ns[lane->gpu] = (launch_ns[lane->gpu] * 3 + busy / batch->launches) / 4;
}

/* Report what is finished, and of what is not, the time so far. */
static void poll_lane(struct lane *lane, uint64_t now) {
    for (; lane->first < lane->next; lane->first++) {
        struct batch *batch = at(lane, lane->first);
        if (CALL(cuEventQuery, (batch->end)) == CUDA_NOT_READY) {
            bool begun = batch->chained || CALL(cuEventQuery, (batch->begin)) != CUDA_NOT_READY;
            if (begun) /* otherwise the stream waits for something else */
                region_gate_busy(lane->gpu, most(batch->start, lane->last_end), now);
            return;
        }
        finish(lane, batch, now);
    }
    if (!lane->open || lane->entering) return;
    struct batch *tail = at(lane, lane->next); /* the program has stopped running ahead: no event will tell when */
    uint64_t start = most(tail->start, lane->last_end);
    report(lane, start, least(start + tail->launches * launch_ns[lane->gpu], now));
    lane->open = false;
}

static void poll_gpu(int gpu, struct lane *lane, uint64_t now) {
    bool all = now - polled[gpu] >= POLL_NS;
    if (all)
        polled[gpu] = now;
    for (struct lane *each = lanes; each < lanes + LANES; each++)
        if (each == lane || (all && each->context && each->gpu == gpu))
            poll_lane(each, now);
}

static void destroy_events(const struct lane *lane) {
    for (int i = 0; i < RING && lane->ring[i].end; i++) {
        CALL(cuEventDestroy_v2, (lane->ring[i].begin));
        CALL(cuEventDestroy_v2, (lane->ring[i].end));
    }
}

static struct lane *lane_of(const struct place *here, CUstream stream, uint64_t now) {
    struct lane *oldest = &lanes[0];
    for (struct lane *lane = lanes; lane < lanes + LANES; lane++) {
        bool mine = stream != STREAM_PER_THREAD || pthread_equal(lane->thread, pthread_self());
        if (lane->context == here->context && lane->stream == stream && mine) {
            lane->touched = now;
            return lane;
        }
        if (lane->touched < oldest->touched)
            oldest = lane;
    }
    destroy_events(oldest);
    *oldest = (struct lane){.context = here->context, .stream = stream, .thread = pthread_self(), .gpu = here->gpu,
                            .touched = now};
    return oldest;
}

static void open_batch(struct lane *lane, uint64_t now) {
    struct batch *batch = at(lane, lane->next);
    if (!batch->end && !CALL(cuCtxPushCurrent_v2, (lane->context))) {
        CALL(cuEventCreate, (&batch->begin, EVENT_BLOCKING_SYNC));
        CALL(cuEventCreate, (&batch->end, EVENT_BLOCKING_SYNC));
        CALL(cuCtxPopCurrent_v2, (&lane->context));
    }
    batch->start = now;
    batch->launches = 0;
    batch->chained = lane->first < lane->next;
    if (!batch->chained)
        CALL(cuEventRecord, (batch->begin, lane->stream));
    lane->open = true;
}

static bool capturing(CUstream stream) {
    int status = 0;
    return CALL(cuStreamIsCapturing, (stream, &status)) || status; /* an error: another stream's capture forbids us */
}

struct pass { /* of one launch through the gate */
    struct lane *lane;
    uint64_t wait_ns; /* 0: go, with a batch open if there is room for one */
    bool blocked;     /* work on another stream is unfinished, and might be waiting for this launch */
    int mode;
};

/* One look at the gate. `force`: go whatever it says. */
static CUresult look(const struct place *here, CUstream stream, bool force, struct pass *pass) {
    LOCKED(gate);
    uint64_t now = clock_now();
    struct lane *lane = lane_of(here, stream, now);
    poll_gpu(here->gpu, lane, now);
    bool full = lane->next - lane->first == RING - 1;
    CUresult rc = region_gate_wait(here->gpu, now, &pass->wait_ns) ? CUDA_SUCCESS : CUDA_SYSTEM_NOT_READY;
    pass->blocked = !pass->wait_ns;
    for (int i = 0; i < LANES && lane->first == lane->next; i++)
        pass->blocked |= lanes[i].context && lanes[i].gpu == here->gpu && lanes[i].first < lanes[i].next;
    if (!pass->wait_ns && full)
        pass->wait_ns = FULL_NS;
    pass->wait_ns = force ? 0 : least(pass->wait_ns, SLICE_NS);
    if (!rc && !pass->wait_ns) {
        if (!lane->open && !full)
            open_batch(lane, now);
        lane->entering++;
    }
    pass->lane = lane;
    return rc;
}

/* Wait for the container's turn. Work recorded into a graph passes: it is gated when the graph is launched. A launch
 * that has waited long while work on another stream is still running goes ahead, since that may be waiting for it. */
static CUresult enter(CUstream stream, struct pass *pass) {
    struct place here;
    uint64_t waited = 0;
    *pass = (struct pass){.mode = CAPTURE_MODE_RELAXED}; /* our own calls must not spoil a capture elsewhere */
    CUresult rc = fgpu_ready();
    if (rc || !fgpu_gated) return rc;
    rc = fgpu_place(stream, &here);
    if (rc || fgpu_limits.gpu[here.gpu].sm_points == ALL_SMS || capturing(stream)) return rc;
    CALL(cuThreadExchangeStreamCaptureMode, (&pass->mode));
    while (!(rc = look(&here, stream, pass->blocked && waited > PATIENCE_NS, pass)) && pass->wait_ns) {
        clock_sleep(pass->wait_ns);
        waited += pass->wait_ns;
    }
    if (rc)
        CALL(cuThreadExchangeStreamCaptureMode, (&pass->mode));
    return rc;
}

/* Close the batch if the stream had nothing else to do, or if it holds about a millisecond of work. */
static CUresult leave(CUresult rc, struct pass *pass) {
    struct lane *lane = pass->lane;
    if (!lane) return rc;
    LOCKED(gate);
    struct batch *batch = at(lane, lane->next);
    lane->entering -= lane->entering > 0;
    if (lane->open) { /* another thread may have closed it, or the context may be gone */
        uint64_t mean = launch_ns[lane->gpu];
        uint64_t enough = mean ? least(BATCH_NS / mean, MOST_LAUNCHES) : 1;
        batch->launches++;
        if (lane->first == lane->next || batch->launches >= enough) {
            CALL(cuEventRecord, (batch->end, lane->stream));
            lane->next++;
            lane->open = false;
        }
    }
    CALL(cuThreadExchangeStreamCaptureMode, (&pass->mode));
    return rc;
}

/* The events went with their context. */
void gate_forget_context(CUcontext context) {
    LOCKED(gate);
    for (int i = 0; i < LANES; i++)
        if (lanes[i].context == context)
            memset(&lanes[i], 0, sizeof lanes[i]);
}

/* Launches of every kind. The second variant of each sends NULL to the calling thread's own stream. */
#define GATED(name, at, params, args) \
    WRAP(name, params) { \
        struct pass pass; \
        CUresult rc = enter(at, &pass); \
        return rc ? rc : leave(CALL(name, args), &pass); \
    }
#define BOTH_GATED(name, at, params, args) \
    GATED(name, at, params, args) \
    GATED(name##_ptsz, PER_THREAD(at), params, args)
#define SHAPE unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
#define SHAPED gx, gy, gz, bx, by, bz, shared
BOTH_GATED(cuLaunchKernel, stream, (CUfunction f, SHAPE, CUstream stream, void **params, void **extra),
           (f, SHAPED, stream, params, extra))
BOTH_GATED(cuLaunchKernelEx, (config ? config->stream : NULL),
           (const CUlaunchConfig *config, CUfunction f, void **params, void **extra), (config, f, params, extra))
BOTH_GATED(cuLaunchCooperativeKernel, stream, (CUfunction f, SHAPE, CUstream stream, void **params),
           (f, SHAPED, stream, params))
BOTH_GATED(cuGraphLaunch, stream, (CUgraphExec exec, CUstream stream), (exec, stream))
GATED(cuLaunch, NULL, (CUfunction f), (f))
GATED(cuLaunchGrid, NULL, (CUfunction f, int width, int height), (f, width, height))
GATED(cuLaunchGridAsync, stream, (CUfunction f, int width, int height, CUstream stream), (f, width, height, stream))

/* Over several GPUs there is no one gate to pass. Obsolete since CUDA 11.3. */
WRAP(cuLaunchCooperativeKernelMultiDevice, (CUlaunchParams *list, unsigned count, unsigned flags)) {
    CUresult rc = fgpu_ready();
    return rc ? rc : fgpu_gated ? CUDA_NOT_SUPPORTED : CALL(cuLaunchCooperativeKernelMultiDevice, (list, count, flags));
}
