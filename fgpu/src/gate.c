/* The SM share. Launches wait while the container's GPU time of the current 100 ms frame is used up. How long the GPU
 * worked is read from events around the launches; the time is added up for the container as the union of what its
 * processes saw, and overdrawn time is paid back from the next frames, so kernels longer than a frame come out right.
 *
 * A lane is a stream of a context. Its launches are measured in batches, each closed by an event. At most a few batches
 * are in flight, which bounds how far a program can run ahead of its budget. A batch starts where the one before it
 * ended if the stream was still busy then, otherwise at an event of its own, so a pause of the program costs nothing. */
#include <pthread.h>
#include <string.h>

#include "fgpu.h"

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

bool fgpu_gated;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static struct lane lanes[LANES];
static uint64_t launch_ns[MAX_GPUS]; /* running mean of the GPU time per launch */
static uint64_t polled[MAX_GPUS];

static struct batch *at(struct lane *lane, uint64_t position) {
    return &lane->ring[position % RING];
}

static void report(struct lane *lane, uint64_t start, uint64_t end, uint64_t now) {
    start = start < lane->last_end ? lane->last_end : start;
    end = end < now ? end : now;
    region_gate_busy(lane->gpu, start, end);
    lane->last_end = end > lane->last_end ? end : lane->last_end;
}

static void finish(struct lane *lane, const struct batch *batch, uint64_t now) {
    float ms = 0;
    CUevent from = batch->chained ? at(lane, lane->first + RING - 1)->end : batch->begin;
    uint64_t start = batch->chained || batch->start < lane->last_end ? lane->last_end : batch->start;
    uint64_t busy = CALL(cuEventElapsedTime, &ms, from, batch->end) ? now - start : (uint64_t)((double)ms * 1e6);
    report(lane, start, start + busy, now);
    launch_ns[lane->gpu] = (launch_ns[lane->gpu] * 3 + busy / batch->launches) / 4;
}

/* Report what is finished, and of what is not, the time so far. */
static void poll_lane(struct lane *lane, uint64_t now) {
    for (; lane->first < lane->next; lane->first++) {
        struct batch *batch = at(lane, lane->first);
        if (CALL(cuEventQuery, batch->end) == CUDA_NOT_READY) {
            bool begun = batch->chained || CALL(cuEventQuery, batch->begin) != CUDA_NOT_READY; /* the stream may wait */
            if (begun)
                region_gate_busy(lane->gpu, batch->start < lane->last_end ? lane->last_end : batch->start, now);
            return;
        }
        finish(lane, batch, now);
    }
    if (!lane->open || lane->entering)
        return;
    struct batch *tail = at(lane, lane->next); /* the program has stopped running ahead: no event will tell when */
    uint64_t start = tail->start < lane->last_end ? lane->last_end : tail->start;
    report(lane, start, start + tail->launches * launch_ns[lane->gpu], now);
    lane->open = false;
}

static void poll_gpu(int gpu, struct lane *lane, uint64_t now) {
    if (now - polled[gpu] < POLL_NS) {
        poll_lane(lane, now);
        return;
    }
    polled[gpu] = now;
    for (int i = 0; i < LANES; i++)
        if (lanes[i].context && lanes[i].gpu == gpu)
            poll_lane(&lanes[i], now);
}

static void retire(struct lane *lane) {
    for (int i = 0; i < RING; i++) {
        if (lane->ring[i].begin)
            CALL(cuEventDestroy_v2, lane->ring[i].begin);
        if (lane->ring[i].end)
            CALL(cuEventDestroy_v2, lane->ring[i].end);
    }
    memset(lane, 0, sizeof *lane);
}

static struct lane *lane_of(CUcontext context, CUstream stream, int gpu, uint64_t now) {
    struct lane *oldest = &lanes[0];
    for (struct lane *lane = lanes; lane < lanes + LANES; lane++) {
        bool mine = stream != STREAM_PER_THREAD || pthread_equal(lane->thread, pthread_self());
        if (lane->context == context && lane->stream == stream && mine) {
            lane->touched = now;
            return lane;
        }
        if (lane->touched < oldest->touched)
            oldest = lane;
    }
    if (oldest->context)
        retire(oldest);
    oldest->context = context;
    oldest->stream = stream;
    oldest->thread = pthread_self();
    oldest->gpu = gpu;
    oldest->touched = now;
    return oldest;
}

static void open_batch(struct lane *lane, uint64_t now) {
    struct batch *batch = at(lane, lane->next);
    if (!batch->end) {
        CALL(cuEventCreate, &batch->begin, EVENT_BLOCKING_SYNC);
        CALL(cuEventCreate, &batch->end, EVENT_BLOCKING_SYNC);
    }
    batch->start = now;
    batch->launches = 0;
    batch->chained = lane->first < lane->next;
    if (!batch->chained)
        CALL(cuEventRecord, batch->begin, lane->stream);
    lane->open = true;
}

static bool capturing(CUstream stream) {
    int status = 0;
    return CALL(cuStreamIsCapturing, stream, &status) || status; /* an error: another stream's capture forbids us */
}

struct turn {
    uint64_t wait_ns; /* 0: go, with a batch open if there is room for one */
    bool over_budget; /* what for; otherwise because enough is in flight */
    bool blocked;     /* work on another stream is unfinished, and might be waiting for this launch */
};

/* One look at the gate. `force`: go whatever it says. */
static CUresult look(int gpu, CUcontext context, CUstream stream, bool force, struct gate_pass *pass, struct turn *turn) {
    uint64_t now = clock_now();
    pthread_mutex_lock(&gate);
    struct lane *lane = lane_of(context, stream, gpu, now);
    poll_gpu(gpu, lane, now);
    bool full = lane->next - lane->first == RING - 1;
    CUresult rc = region_gate_wait(gpu, now, &turn->wait_ns) ? CUDA_SUCCESS : CUDA_SYSTEM_NOT_READY;
    turn->over_budget = turn->wait_ns > 0;
    turn->blocked = !turn->over_budget;
    for (int i = 0; i < LANES && lane->first == lane->next; i++)
        turn->blocked |= lanes[i].context && lanes[i].gpu == gpu && lanes[i].first < lanes[i].next;
    if (force)
        turn->wait_ns = 0;
    else if (!turn->over_budget && full)
        turn->wait_ns = FULL_NS;
    turn->wait_ns = turn->wait_ns < SLICE_NS ? turn->wait_ns : SLICE_NS;
    if (!rc && !turn->wait_ns) {
        if (!lane->open && !full)
            open_batch(lane, now);
        lane->entering++;
    }
    pass->lane = lane;
    pthread_mutex_unlock(&gate);
    return rc;
}

/* Wait for the container's turn. Work recorded into a graph passes: it is gated when the graph is launched. A launch that
 * has waited long while work on another stream is still running goes ahead, for that work may be waiting for it. */
CUresult gate_enter(CUstream stream, struct gate_pass *pass) {
    int gpu;
    CUdevice device;
    CUcontext context;
    uint64_t waited = 0;
    struct turn turn = {0};
    pass->entered = false;
    CUresult rc = fgpu_here(&gpu, &device, &context);
    if (rc || fgpu_limits.gpu[gpu].sm_points == 10000 || capturing(stream))
        return rc;
    pass->mode = CAPTURE_MODE_RELAXED; /* our own calls must not spoil a capture elsewhere */
    CALL(cuThreadExchangeStreamCaptureMode, &pass->mode);
    for (;;) {
        rc = look(gpu, context, stream, turn.blocked && waited > PATIENCE_NS, pass, &turn);
        if (rc || !turn.wait_ns)
            break;
        clock_sleep(turn.wait_ns);
        waited += turn.wait_ns;
        if (turn.over_budget)
            region_gate_throttled(gpu, turn.wait_ns);
    }
    pass->entered = !rc;
    if (rc)
        CALL(cuThreadExchangeStreamCaptureMode, &pass->mode);
    return rc;
}

/* Close the batch if the stream had nothing else to do, or if it holds about a millisecond of work. */
void gate_leave(struct gate_pass *pass) {
    struct lane *lane = pass->lane;
    if (!pass->entered)
        return;
    pthread_mutex_lock(&gate);
    struct batch *batch = at(lane, lane->next);
    lane->entering -= lane->entering > 0;
    if (lane->open) { /* another thread may have closed it, or the context may be gone */
        uint64_t mean = launch_ns[lane->gpu];
        unsigned enough = mean ? (unsigned)(BATCH_NS / mean < MOST_LAUNCHES ? BATCH_NS / mean : MOST_LAUNCHES) : 1;
        batch->launches++;
        if (lane->first == lane->next || batch->launches >= enough) {
            CALL(cuEventRecord, batch->end, lane->stream);
            lane->next++;
            lane->open = false;
        }
    }
    pthread_mutex_unlock(&gate);
    CALL(cuThreadExchangeStreamCaptureMode, &pass->mode);
}

/* The events went with their context. */
void gate_forget_context(CUcontext context) {
    pthread_mutex_lock(&gate);
    for (int i = 0; i < LANES; i++)
        if (lanes[i].context == context)
            memset(&lanes[i], 0, sizeof lanes[i]);
    pthread_mutex_unlock(&gate);
}

void gate_forget_process(void) {
    pthread_mutex_init(&gate, NULL);
    memset(lanes, 0, sizeof lanes);
}
