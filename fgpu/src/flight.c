/* What this process has in flight, and how long the GPU worked on it: read from events around the launches.
 *
 * A queue belongs to a stream of a context. Its launches are measured in batches, each closed by an event. At most a
 * few batches are in flight, which bounds how far a program can run ahead. A batch starts where the one before it ended
 * if the stream was still busy then, otherwise at an event of its own, so a pause of the program is free. So is what a
 * stream is told to wait for: the batch before is closed there, and the next one has an event of its own. */
#include "queue.h"

HELPER(cuStreamIsCapturing, (CUstream, int *));
HELPER(cuStreamQuery, (CUstream));
HELPER(cuCtxPushCurrent_v2, (CUcontext));
HELPER(cuCtxPopCurrent_v2, (CUcontext *));
HELPER(cuEventCreate, (CUevent *, unsigned));
HELPER(cuEventRecord, (CUevent, CUstream));
HELPER(cuEventQuery, (CUevent));
HELPER(cuEventElapsedTime, (float *, CUevent, CUevent));

enum { MAX_LAUNCHES = 64, SPLITS = 3 };
enum { BATCH_NS = 1000000, POLL_NS = 200000, UNKNOWN_NS = 5000000, SHORT_NS = 100000 };
enum { STUCK_NS = 1000000000, MIXED_NS = 100000000 };

static uint64_t launch_ns[MAX_GPUS]; /* running mean of the GPU time per launch */
static uint64_t polled[MAX_GPUS], covered[MAX_GPUS]; /* up to where time was counted: streams overlap */
static uint64_t elsewhere[MAX_GPUS]; /* when last nothing was at work, by a look at all */

static void report(struct queue *queue, uint64_t start, uint64_t end, uint64_t now) {
    region_gate_busy(queue->gpu, start, end, !turn_is_governed(now));
    queue->last_end = most(queue->last_end, end);
    covered[queue->gpu] = most(covered[queue->gpu], end);
}

static void finish(struct queue *queue, const struct batch *batch, uint64_t now) {
    float ms = 0, pause_ms = 0;
    CUevent before = batch_at(queue, queue->first + RING - 1)->end, from = batch->chained ? before : batch->begin;
    uint64_t start = batch->chained ? queue->last_end : most(batch->start, queue->last_end);
    if (batch->behind && before && !CALL(cuEventElapsedTime, (&pause_ms, before, batch->begin)))
        start = queue->last_end + (uint64_t)((double)pause_ms * 1e6);
    uint64_t busy = CALL(cuEventElapsedTime, (&ms, from, batch->end)) ? now - start : (uint64_t)((double)ms * 1e6);
    if (batch->behind) /* what is reported past that event by an estimate is in the pause too */
        start = least(start, now - busy);
    uint64_t end = least(start + busy, now), fresh = most(start, covered[queue->gpu]);
    report(queue, start, end, now);
    uint64_t each = most((end > fresh ? end - fresh : 0) / batch->launches, 1);
    launch_ns[queue->gpu] = launch_ns[queue->gpu] ? (launch_ns[queue->gpu] * 3 + each) / 4 : each;
}

static uint64_t tail_end(struct queue *queue) {
    const struct batch *tail = batch_at(queue, queue->next);
    return most(tail->start, queue->last_end) + tail->launches * launch_ns[queue->gpu];
}

static void close_batch(struct queue *queue) {
    CALL(cuEventRecord, (batch_at(queue, queue->next)->end, queue->stream));
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
    report(queue, most(batch_at(queue, queue->next)->start, queue->last_end), least(tail_end(queue), now), now);
    queue->open = false;
}

/* Report what is finished, and of what is not, the time so far. */
static void poll_queue(struct queue *queue, bool ask, uint64_t now) {
    for (; queue->first < queue->next; queue->first++) {
        struct batch *batch = batch_at(queue, queue->first);
        if (CALL(cuEventQuery, (batch->end)) == CUDA_NOT_READY) {
            batch->begun = batch->begun || batch->chained || CALL(cuEventQuery, (batch->begin)) != CUDA_NOT_READY;
            if (batch->begun)
                region_gate_busy(queue->gpu, most(batch->start, queue->last_end), now, !turn_is_governed(now));
            else /* the stream waits for something else, or the GPU is not ours at the moment */
                batch->start = now;
            return;
        }
        finish(queue, batch, now);
        batch_at(queue, queue->first + 1)->launched = now; /* waited for nothing but this one until now */
    }
    if (queue->open && !queue->entering && (ask || !queue->together))
        close_tail(queue, ask, now);
}

/* Of very many, as many as take some microseconds: the others' turn comes with the next looks. */
static void poll_some(int gpu, bool ask, uint64_t now) {
    for (uint64_t left = least(queues_in_use(gpu), AT_ONCE); left; left--) {
        struct queue *queue = queue_next_to_poll(gpu);
        if (!queue) return;
        poll_queue(queue, ask, now);
        queue_changed(queue);
    }
}

void flight_poll(int gpu, struct queue *queue, uint64_t now) {
    poll_queue(queue, false, now);
    queue_changed(queue);
    if (now - polled[gpu] >= POLL_NS) {
        polled[gpu] = now;
        poll_some(gpu, false, now);
    }
    queues_trim();
}

void flight_poll_all(uint64_t now) {
    for (int gpu = 0; gpu < fgpu_limits.count; gpu++)
        poll_some(gpu, true, now);
}

/* Nothing of this process is at work on the GPU: its streams wait for what is elsewhere, by a look at all. */
bool flight_waits_elsewhere(int gpu, uint64_t now) {
    const struct queue_sums *sums = queue_sums(gpu);
    if (sums->working > sums->behind) return false;
    if (now - elsewhere[gpu] < POLL_NS) return true;
    poll_some(gpu, false, now);
    if (sums->working > sums->behind) return false;
    elsewhere[gpu] = now;
    return true;
}

bool flight_is_full(struct queue *queue, uint64_t now) {
    if (queue->next - queue->first < RING - 1 || queue_has_waited(queue, STUCK_NS)) return false;
    const struct batch *batch = batch_at(queue, queue->first);
    return !(batch->mixed && now - batch->launched > MIXED_NS)
           && !(queue_is_behind(queue) && flight_waits_elsewhere(queue->gpu, now));
}

bool flight_any(int gpu, uint64_t now) { return queue_sums(gpu)->working && !flight_waits_elsewhere(gpu, now); }

bool flight_is_alone(const struct queue *queue) { return queue_sums(queue->gpu)->closed == queue->counted.closed; }

bool flight_is_held(int gpu) { return queues_in_use(gpu) > 0; }

/* One after the other, whatever their streams: what the GPU does at the same time is shorter by that on average. */
uint64_t flight_ahead(int gpu, uint64_t now) {
    uint64_t launches = queue_sums(gpu)->launches;
    if (!launches) return 0;
    if (!launch_ns[gpu]) return UNKNOWN_NS; /* until the first is measured */
    uint64_t end = most(queues_began(gpu, now), covered[gpu]) + launches * launch_ns[gpu];
    return end > now ? end - now : 0;
}

static void open_batch(struct queue *queue, uint64_t now) {
    struct batch *batch = batch_at(queue, queue->next);
    if (!batch->end && !CALL(cuCtxPushCurrent_v2, (queue->context))) {
        CALL(cuEventCreate, (&batch->begin, EVENT_BLOCKING_SYNC));
        CALL(cuEventCreate, (&batch->end, EVENT_BLOCKING_SYNC));
        CALL(cuCtxPopCurrent_v2, (&queue->context));
    }
    batch->launched = batch->start = now;
    batch->launches = 0;
    batch->begun = false;
    batch->behind = queue->told_to_wait && queue->seen;
    batch->mixed = queue->told_to_wait && !queue->seen;
    batch->chained = queue->first < queue->next && !batch->behind;
    if (!batch->chained)
        CALL(cuEventRecord, (batch->begin, queue->stream));
    queue->open = true;
}

void flight_enter(struct queue *queue, bool for_turns, uint64_t now) {
    bool others = queue_sums(queue->gpu)->working > queue->counted.working; /* events tell how far they are */
    queue->together = for_turns && !others && launch_ns[queue->gpu] && launch_ns[queue->gpu] < SHORT_NS;
    if (!queue->open && queue->next - queue->first < RING - 1)
        open_batch(queue, now);
    else if (!queue->open) { /* it goes ahead all the same: the last batch ends after it, and is paid as a whole */
        queue->next--;
        queue->open = true;
        batch_at(queue, queue->next)->mixed |= queue->told_to_wait;
    }
    queue->told_to_wait = false;
    queue->entering++;
    queue_changed(queue);
}

/* The stream is about to be told to wait for something: a batch ends here, and the next one is seen to wait. Where that
 * is so at every launch, as of streams that wait for each other, a few do at once, then one in the time of a batch. */
void flight_wait(struct queue *queue, uint64_t now) {
    if (queue->told_to_wait) return; /* since the last launch */
    queue->seen = queue->split_at <= now && queue->next + queue->open - queue->first < RING - 1 && !queue->entering;
    if (queue->seen && queue->open)
        close_batch(queue);
    if (queue->seen)
        queue->split_at = most(queue->split_at, now - SPLITS * BATCH_NS) + BATCH_NS;
    queue->told_to_wait = !queue->open;
    if (queue->open)
        batch_at(queue, queue->next)->mixed = true;
    queue_changed(queue);
    queues_trim();
}

/* Close the batch if the stream had nothing else to do, or if it holds about a millisecond of work. Two events cost as
 * much as a short kernel: where turns decide, in which pauses are not free, short ones are measured together. */
void flight_leave(struct queue *queue) {
    uint64_t mean = launch_ns[queue->gpu], enough = mean ? least(BATCH_NS / mean, MAX_LAUNCHES) : 1;
    queue->entering--;
    if (queue->open) { /* another thread may have closed it, or the context may be gone */
        struct batch *batch = batch_at(queue, queue->next);
        batch->launches++;
        if ((queue->first == queue->next && !queue->together) || batch->launches >= enough || batch->behind)
            close_batch(queue);
    }
    queue_changed(queue);
}

bool flight_is_capturing(CUstream stream) {
    int status = 0;
    return CALL(cuStreamIsCapturing, (stream, &status)) || status; /* an error: another stream's capture forbids us */
}

/* Its work goes on, and its events with it. */
static void forget(struct queue *queue) {
    if (queue->open)
        close_batch(queue);
    queue->stream = DESTROYED;
    queue_changed(queue);
}

void flight_forget_stream(CUstream stream) { queues_each(stream, forget); }

void flight_forget_context(CUcontext context) { queues_drop_context(context); }
