/* What this process has in flight, and how long the GPU worked on it: read from events around the launches.
 *
 * A queue belongs to a stream of a context. Its launches are measured in batches, each closed by an event. At most a
 * few batches are in flight, which bounds how far a program can run ahead. A batch starts where the one before it ended
 * if the stream was still busy then, otherwise at an event of its own, so a pause of the program is free. */
#include <stdlib.h>
#include <string.h>

#include "fgpu.h"

HELPER(cuStreamIsCapturing, (CUstream, int *));
HELPER(cuStreamQuery, (CUstream));
HELPER(cuCtxPushCurrent_v2, (CUcontext));
HELPER(cuCtxPopCurrent_v2, (CUcontext *));
HELPER(cuEventCreate, (CUevent *, unsigned));
HELPER(cuEventDestroy_v2, (CUevent));
HELPER(cuEventRecord, (CUevent, CUstream));
HELPER(cuEventQuery, (CUevent));
HELPER(cuEventElapsedTime, (float *, CUevent, CUevent));

enum { KEPT = 32, RING = 5, MAX_LAUNCHES = 64 };
enum { BATCH_NS = 1000000, POLL_NS = 200000, UNKNOWN_NS = 5000000, WAITING_NS = 5000000 };
#define DESTROYED ((CUstream)UINTPTR_MAX)

struct batch {
    CUevent begin, end;
    uint64_t launched, start; /* host time; not yet begun at `start` */
    unsigned launches;
    bool chained; /* starts at the end of the batch before */
    bool begun;
};
struct queue {
    struct queue *next_queue;
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

PER_PROCESS static struct queue *queues;
PER_PROCESS static int count; /* more than KEPT only while all of them are in use */
static uint64_t launch_ns[MAX_GPUS]; /* running mean of the GPU time per launch */
static uint64_t polled[MAX_GPUS], covered[MAX_GPUS]; /* up to where time was counted: streams overlap */
#define EACH_QUEUE(q) (struct queue *q = queues; q; q = q->next_queue)

static struct batch *at(struct queue *queue, uint64_t position) { return &queue->ring[position % RING]; }
static bool in_flight(const struct queue *queue) { return queue->first < queue->next || queue->open; }

/* Its stream waits for something that is not on the GPU, or on another. */
static bool is_waiting(struct queue *queue) {
    const struct batch *batch = at(queue, queue->first);
    return queue->first < queue->next && !batch->chained && !batch->begun
           && batch->start - batch->launched > WAITING_NS;
}

static void report(struct queue *queue, uint64_t start, uint64_t end, uint64_t now) {
    region_gate_busy(queue->gpu, start, end, !turn_is_governed(now));
    queue->last_end = most(queue->last_end, end);
    covered[queue->gpu] = most(covered[queue->gpu], end);
}

static void finish(struct queue *queue, const struct batch *batch, uint64_t now) {
    float ms = 0;
    CUevent from = batch->chained ? at(queue, queue->first + RING - 1)->end : batch->begin;
    uint64_t start = batch->chained ? queue->last_end : most(batch->start, queue->last_end);
    uint64_t busy = CALL(cuEventElapsedTime, (&ms, from, batch->end)) ? now - start : (uint64_t)((double)ms * 1e6);
    uint64_t end = least(start + busy, now), fresh = most(start, covered[queue->gpu]);
    report(queue, start, end, now);
    uint64_t each = most((end > fresh ? end - fresh : 0) / batch->launches, 1);
    launch_ns[queue->gpu] = launch_ns[queue->gpu] ? (launch_ns[queue->gpu] * 3 + each) / 4 : each;
}

static uint64_t tail_end(struct queue *queue) {
    const struct batch *tail = at(queue, queue->next);
    return most(tail->start, queue->last_end) + tail->launches * launch_ns[queue->gpu];
}

static void close_batch(struct queue *queue) {
    CALL(cuEventRecord, (at(queue, queue->next)->end, queue->stream));
    queue->next++;
    queue->open = false;
}

/* The program has stopped running ahead, with launches that no event closes. If the stream is done, they took about as
 * long as others; otherwise an event will tell. Another thread's own stream cannot be asked. */
static void close_tail(struct queue *queue, bool ask, uint64_t now) {
    bool busy = false;
    if (ask && queue->stream != STREAM_PER_THREAD && !CALL(cuCtxPushCurrent_v2, (queue->context))) {
        busy = !flight_is_capturing(queue->stream) && CALL(cuStreamQuery, (queue->stream)) == CUDA_NOT_READY;
        if (busy)
            close_batch(queue);
        CALL(cuCtxPopCurrent_v2, (&queue->context));
    }
    if (busy || (ask && tail_end(queue) > now)) return;
    report(queue, most(at(queue, queue->next)->start, queue->last_end), least(tail_end(queue), now), now);
    queue->open = false;
}

/* Report what is finished, and of what is not, the time so far. */
static void poll_queue(struct queue *queue, bool ask, uint64_t now) {
    for (; queue->first < queue->next; queue->first++) {
        struct batch *batch = at(queue, queue->first);
        if (CALL(cuEventQuery, (batch->end)) == CUDA_NOT_READY) {
            batch->begun = batch->begun || batch->chained || CALL(cuEventQuery, (batch->begin)) != CUDA_NOT_READY;
            if (batch->begun)
                region_gate_busy(queue->gpu, most(batch->start, queue->last_end), now, !turn_is_governed(now));
            else /* the stream waits for something else, or the GPU is not ours at the moment */
                batch->start = now;
            return;
        }
        finish(queue, batch, now);
    }
    if (queue->open && !queue->entering)
        close_tail(queue, ask, now);
}

void flight_poll(int gpu, struct queue *queue, uint64_t now) {
    bool all = now - polled[gpu] >= POLL_NS;
    if (all)
        polled[gpu] = now;
    for EACH_QUEUE(each)
        if (each == queue || (all && each->gpu == gpu))
            poll_queue(each, false, now);
}

void flight_poll_all(uint64_t now) {
    for EACH_QUEUE(each)
        poll_queue(each, true, now);
}

static void destroy_events(const struct queue *queue) {
    for (int i = 0; i < RING && queue->ring[i].end; i++) {
        CALL(cuEventDestroy_v2, (queue->ring[i].begin));
        CALL(cuEventDestroy_v2, (queue->ring[i].end));
    }
}

/* One that has nothing in flight, the longest unused, once there are many. */
static struct queue *reusable(void) {
    struct queue *oldest = NULL;
    for EACH_QUEUE(queue)
        if (!in_flight(queue) && !queue->entering && (!oldest || queue->touched < oldest->touched))
            oldest = queue;
    return oldest;
}

struct queue *flight_of(const struct place *here, CUstream stream, uint64_t now) {
    for EACH_QUEUE(queue) {
        bool mine = stream != STREAM_PER_THREAD || pthread_equal(queue->thread, pthread_self());
        if (queue->context == here->context && queue->stream == stream && mine) {
            queue->touched = now;
            return queue;
        }
    }
    struct queue *queue = count >= KEPT ? reusable() : NULL, *next = queues;
    if (queue) {
        destroy_events(queue);
        next = queue->next_queue;
    } else {
        if (!(queue = malloc(sizeof *queue))) return NULL;
        queues = queue;
        count++;
    }
    *queue = (struct queue){.next_queue = next, .context = here->context, .stream = stream, .thread = pthread_self(),
                            .gpu = here->gpu, .touched = now};
    return queue;
}

bool flight_is_full(const struct queue *queue) { return queue->next - queue->first == RING - 1; }

bool flight_any(int gpu) {
    for EACH_QUEUE(queue)
        if (queue->gpu == gpu && in_flight(queue) && !is_waiting(queue)) return true;
    return false;
}

bool flight_is_alone(const struct queue *queue) {
    for EACH_QUEUE(each)
        if (each != queue && each->gpu == queue->gpu && each->first < each->next) return false;
    return true;
}

bool flight_is_held(int gpu) {
    for EACH_QUEUE(queue)
        if (queue->gpu == gpu && in_flight(queue)) return true;
    return false;
}

static unsigned launches_of(struct queue *queue) {
    unsigned launches = queue->open ? at(queue, queue->next)->launches : 0;
    for (uint64_t i = queue->first; i < queue->next; i++)
        launches += at(queue, i)->launches;
    return launches;
}

/* One after the other, whatever their streams: what the GPU does at the same time is shorter by that on average. */
uint64_t flight_ahead(int gpu, uint64_t now) {
    uint64_t launches = 0, start = now;
    for EACH_QUEUE(queue) {
        if (queue->gpu != gpu || !in_flight(queue) || is_waiting(queue))
            continue;
        launches += launches_of(queue);
        start = least(start, at(queue, queue->first)->start);
    }
    if (launches && !launch_ns[gpu]) return UNKNOWN_NS; /* until the first is measured */
    uint64_t end = most(start, covered[gpu]) + launches * launch_ns[gpu];
    return launches && end > now ? end - now : 0;
}

static void open_batch(struct queue *queue, uint64_t now) {
    struct batch *batch = at(queue, queue->next);
    if (!batch->end && !CALL(cuCtxPushCurrent_v2, (queue->context))) {
        CALL(cuEventCreate, (&batch->begin, EVENT_BLOCKING_SYNC));
        CALL(cuEventCreate, (&batch->end, EVENT_BLOCKING_SYNC));
        CALL(cuCtxPopCurrent_v2, (&queue->context));
    }
    batch->launched = batch->start = now;
    batch->launches = 0;
    batch->begun = false;
    batch->chained = queue->first < queue->next;
    if (!batch->chained)
        CALL(cuEventRecord, (batch->begin, queue->stream));
    queue->open = true;
}

void flight_enter(struct queue *queue, uint64_t now) {
    if (!queue->open && !flight_is_full(queue))
        open_batch(queue, now);
    queue->entering++;
}

/* Close the batch if the stream had nothing else to do, or if it holds about a millisecond of work. */
void flight_leave(struct queue *queue) {
    queue->entering -= queue->entering > 0;
    if (!queue->open) return; /* another thread may have closed it, or the context may be gone */
    uint64_t mean = launch_ns[queue->gpu], enough = mean ? least(BATCH_NS / mean, MAX_LAUNCHES) : 1;
    at(queue, queue->next)->launches++;
    if (queue->first == queue->next || at(queue, queue->next)->launches >= enough)
        close_batch(queue);
}

bool flight_is_capturing(CUstream stream) {
    int status = 0;
    return CALL(cuStreamIsCapturing, (stream, &status)) || status; /* an error: another stream's capture forbids us */
}

/* Its work goes on, and its events with it. */
void flight_forget_stream(CUstream stream) {
    for EACH_QUEUE(queue) {
        if (queue->stream != stream)
            continue;
        if (queue->open)
            close_batch(queue);
        queue->stream = DESTROYED;
    }
}

void flight_forget_context(CUcontext context) {
    for EACH_QUEUE(queue)
        if (queue->context == context)
            *queue = (struct queue){.next_queue = queue->next_queue, .stream = DESTROYED, .gpu = queue->gpu};
}
