/* The SM share. Launches wait while the container's GPU time of the current 100 ms frame is used up. How long the GPU
 * worked is read from events around the launches; the time is added up for the container as the union of what its
 * processes saw, and overdrawn time is paid back from the next frames, so kernels longer than a frame come out right.
 *
 * A queue belongs to a stream of a context. Its launches are measured in batches, each closed by an event. At most a
 * few batches are in flight, which bounds how far a program can run ahead of its budget. A batch starts where the one
 * before it ended if the stream was still busy then, otherwise at an event of its own, so a pause of the program is
 * free. */
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

enum { QUEUES = 32, RING = 5, MAX_LAUNCHES = 64, BATCH_NS = 1000000, POLL_NS = 200000, FULL_NS = 250000 };
#define PATIENCE_NS 10000000000ull
#define SLICE_NS 200000000u

struct batch {
    CUevent begin, end;
    uint64_t start; /* host time */
    unsigned launches;
    bool chained; /* starts at the end of the batch before */
};
struct queue {
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
PER_PROCESS static struct queue queues[QUEUES];
static uint64_t launch_ns[MAX_GPUS]; /* running mean of the GPU time per launch */
static uint64_t polled[MAX_GPUS];

static struct batch *at(struct queue *queue, uint64_t position) { return &queue->ring[position % RING]; }

static void report(struct queue *queue, uint64_t start, uint64_t end) {
    region_gate_busy(queue->gpu, start, end);
    queue->last_end = most(queue->last_end, end);
}

static void finish(struct queue *queue, const struct batch *batch, uint64_t now) {
    float ms = 0;
    CUevent from = batch->chained ? at(queue, queue->first + RING - 1)->end : batch->begin;
    uint64_t start = batch->chained ? queue->last_end : most(batch->start, queue->last_end);
    uint64_t busy = CALL(cuEventElapsedTime, (&ms, from, batch->end)) ? now - start : (uint64_t)((double)ms * 1e6);
    report(queue, start, least(start + busy, now));
    launch_ns[queue->gpu] = (launch_ns[queue->gpu] * 3 + busy / batch->launches) / 4;
}

/* Report what is finished, and of what is not, the time so far. */
static void poll_queue(struct queue *queue, uint64_t now) {
    for (; queue->first < queue->next; queue->first++) {
        struct batch *batch = at(queue, queue->first);
        if (CALL(cuEventQuery, (batch->end)) == CUDA_NOT_READY) {
            bool begun = batch->chained || CALL(cuEventQuery, (batch->begin)) != CUDA_NOT_READY;
            if (begun) /* otherwise the stream waits for something else */
                region_gate_busy(queue->gpu, most(batch->start, queue->last_end), now);
            return;
        }
        finish(queue, batch, now);
    }
    if (!queue->open || queue->entering) return;
    struct batch *tail = at(queue, queue->next); /* the program has stopped running ahead: no event will tell when */
    uint64_t start = most(tail->start, queue->last_end);
    report(queue, start, least(start + tail->launches * launch_ns[queue->gpu], now));
    queue->open = false;
}

static void poll_gpu(int gpu, struct queue *queue, uint64_t now) {
    bool all = now - polled[gpu] >= POLL_NS;
    if (all)
        polled[gpu] = now;
    for (struct queue *each = queues; each < queues + QUEUES; each++)
        if (each == queue || (all && each->context && each->gpu == gpu))
            poll_queue(each, now);
}

static void destroy_events(const struct queue *queue) {
    for (int i = 0; i < RING && queue->ring[i].end; i++) {
        CALL(cuEventDestroy_v2, (queue->ring[i].begin));
        CALL(cuEventDestroy_v2, (queue->ring[i].end));
    }
}

static struct queue *queue_of(const struct place *here, CUstream stream, uint64_t now) {
    struct queue *oldest = &queues[0];
    for (struct queue *queue = queues; queue < queues + QUEUES; queue++) {
        bool mine = stream != STREAM_PER_THREAD || pthread_equal(queue->thread, pthread_self());
        if (queue->context == here->context && queue->stream == stream && mine) {
            queue->touched = now;
            return queue;
        }
        if (queue->touched < oldest->touched)
            oldest = queue;
    }
    destroy_events(oldest);
    *oldest = (struct queue){.context = here->context, .stream = stream, .thread = pthread_self(), .gpu = here->gpu,
                            .touched = now};
    return oldest;
}

static void open_batch(struct queue *queue, uint64_t now) {
    struct batch *batch = at(queue, queue->next);
    if (!batch->end && !CALL(cuCtxPushCurrent_v2, (queue->context))) {
        CALL(cuEventCreate, (&batch->begin, EVENT_BLOCKING_SYNC));
        CALL(cuEventCreate, (&batch->end, EVENT_BLOCKING_SYNC));
        CALL(cuCtxPopCurrent_v2, (&queue->context));
    }
    batch->start = now;
    batch->launches = 0;
    batch->chained = queue->first < queue->next;
    if (!batch->chained)
        CALL(cuEventRecord, (batch->begin, queue->stream));
    queue->open = true;
}

static bool capturing(CUstream stream) {
    int status = 0;
    return CALL(cuStreamIsCapturing, (stream, &status)) || status; /* an error: another stream's capture forbids us */
}

struct pass { /* of one launch through the gate */
    struct queue *queue;
    uint64_t wait_ns; /* 0: go, with a batch open if there is room for one */
    bool blocked;     /* work on another stream is unfinished, and might be waiting for this launch */
    int mode;
};

/* One look at the gate. `force`: go whatever it says. */
static CUresult look(const struct place *here, CUstream stream, bool force, struct pass *pass) {
    LOCKED(gate);
    uint64_t now = clock_now();
    struct queue *queue = queue_of(here, stream, now);
    poll_gpu(here->gpu, queue, now);
    bool full = queue->next - queue->first == RING - 1;
    CUresult rc = region_gate_wait(here->gpu, now, &pass->wait_ns) ? CUDA_SUCCESS : CUDA_SYSTEM_NOT_READY;
    pass->blocked = !pass->wait_ns;
    for (int i = 0; i < QUEUES && queue->first == queue->next; i++)
        pass->blocked |= queues[i].context && queues[i].gpu == here->gpu && queues[i].first < queues[i].next;
    if (!pass->wait_ns && full)
        pass->wait_ns = FULL_NS;
    pass->wait_ns = force ? 0 : least(pass->wait_ns, SLICE_NS);
    if (!rc && !pass->wait_ns) {
        if (!queue->open && !full)
            open_batch(queue, now);
        queue->entering++;
    }
    pass->queue = queue;
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
    struct queue *queue = pass->queue;
    if (!queue) return rc;
    LOCKED(gate);
    struct batch *batch = at(queue, queue->next);
    queue->entering -= queue->entering > 0;
    if (queue->open) { /* another thread may have closed it, or the context may be gone */
        uint64_t mean = launch_ns[queue->gpu];
        uint64_t enough = mean ? least(BATCH_NS / mean, MAX_LAUNCHES) : 1;
        batch->launches++;
        if (queue->first == queue->next || batch->launches >= enough) {
            CALL(cuEventRecord, (batch->end, queue->stream));
            queue->next++;
            queue->open = false;
        }
    }
    CALL(cuThreadExchangeStreamCaptureMode, (&pass->mode));
    return rc;
}

/* The events went with their context. */
void gate_forget_context(CUcontext context) {
    LOCKED(gate);
    for (int i = 0; i < QUEUES; i++)
        if (queues[i].context == context)
            memset(&queues[i], 0, sizeof queues[i]);
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
