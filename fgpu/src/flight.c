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
HELPER(cuStreamDestroy_v2, (CUstream));
HELPER(cuEventCreate, (CUevent *, unsigned));
HELPER(cuEventRecord, (CUevent, CUstream));
HELPER(cuEventQuery, (CUevent));
HELPER(cuEventElapsedTime, (float *, CUevent, CUevent));

enum { MAX_LAUNCHES = 64, SPLITS = 3 };
enum { BATCH_NS = 1000000, POLL_NS = 200000, UNKNOWN_NS = 5000000, SHORT_NS = 100000 };
enum { STUCK_NS = 1000000000, MIXED_NS = 100000000 };

static uint64_t launch_ns[MAX_GPUS]; /* running mean of the GPU time per launch */
static uint64_t polled[MAX_GPUS], covered[MAX_GPUS]; /* up to where time was counted: streams overlap */
static struct { uint64_t ns, launches; } ended[MAX_GPUS]; /* since the mean was taken last */
static uint64_t elsewhere[MAX_GPUS]; /* when last nothing was at work, by a look at all */

/* The first to end of streams that work at the same time has the time of all: the mean is of as many launches as are
 * in flight. */
static void report(struct queue *queue, uint64_t start, uint64_t end, unsigned launches, uint64_t now) {
    int gpu = queue->gpu;
    region_gate_busy(gpu, start, end, !turn_is_governed(now));
    queue->last_end = most(queue->last_end, end);
    ended[gpu].ns += end - least(most(start, covered[gpu]), end);
    ended[gpu].launches += launches;
    covered[gpu] = most(covered[gpu], end);
    if (ended[gpu].launches < queue_sums(gpu)->launches) return;
    uint64_t each = most(ended[gpu].ns / ended[gpu].launches, 1);
    launch_ns[gpu] = launch_ns[gpu] ? (launch_ns[gpu] * 3 + each) / 4 : each;
    ended[gpu].ns = ended[gpu].launches = 0;
}

/* The driver's time between two events, which it may take in either order. */
static uint64_t ns_of(float ms) { return ms > 0 ? (uint64_t)((double)ms * 1e6) : 0; }

static void finish(struct queue *queue, const struct batch *batch, uint64_t now) {
    float ms = 0, pause_ms = 0;
    CUevent before = batch_at(queue, queue->first + RING - 1)->end, from = batch->chained ? before : batch->begin;
    uint64_t start = batch->chained ? queue->last_end : most(batch->start, queue->last_end);
    if (batch->behind && before && !CALL(cuEventElapsedTime, (&pause_ms, before, batch->begin)))
        start = queue->last_end + ns_of(pause_ms);
    uint64_t busy = CALL(cuEventElapsedTime, (&ms, from, batch->end)) ? now - start : ns_of(ms);
    if (batch->behind) /* what is reported past that event by an estimate is in the pause too */
        start = least(start, now - busy);
    report(queue, start, least(start + busy, now), batch->launches, now);
}

static uint64_t tail_end(struct queue *queue) {
    const struct batch *tail = batch_at(queue, queue->next);
    uint64_t end = most(tail->start, queue->last_end) + tail->launches * launch_ns[queue->gpu];
    return queue->beside ? most(end, queue->due) : end;
}

static CUevent close_batch(struct queue *queue) {
    CUevent end = batch_at(queue, queue->next)->end;
    queue->next++;
    queue->open = false;
    atomic_store_explicit(&queue->recording, end ? END : NOTHING, memory_order_relaxed);
    return end;
}

/* Another thread's own stream cannot be asked. */
static bool is_busy(const struct queue *queue) {
    CUcontext context = queue->context;
    bool foreign = queue->stream == STREAM_PER_THREAD && !pthread_equal(queue->thread, pthread_self());
    if (foreign || CALL(cuCtxPushCurrent_v2, (context))) return false;
    bool busy = !flight_is_capturing(queue->stream) && CALL(cuStreamQuery, (queue->stream)) == CUDA_NOT_READY;
    CALL(cuCtxPopCurrent_v2, (&context));
    return busy;
}

/* The program has stopped running ahead, with launches that no event closes. If the stream is done, they took about as
 * long as others; otherwise an event will tell: the helper's, or that of the next launch. Beside other streams they may
 * have waited for those, whose events tell how long: they are done when all that was launched before them is. */
static CUevent close_tail(struct queue *queue, bool ask, uint64_t now) {
    const struct batch *tail = batch_at(queue, queue->next);
    if (queue->beside && queue->due > now) return NULL;
    if ((ask || !queue->beside) && is_busy(queue)) return ask ? close_batch(queue) : NULL;
    if (ask && tail_end(queue) > now) return NULL;
    report(queue, most(tail->start, queue->last_end), least(tail_end(queue), now), tail->launches, now);
    queue->open = false;
    return NULL;
}

/* Report what is finished, and of what is not, the time so far. */
static CUevent poll_queue(struct queue *queue, bool ask, uint64_t now) {
    bool ending = queue->recording >= END;
    for (; queue->first < queue->next; queue->first++) {
        struct batch *batch = batch_at(queue, queue->first);
        if ((ending && queue->first + 1 == queue->next) || CALL(cuEventQuery, (batch->end)) == CUDA_NOT_READY) {
            batch->begun = batch->begun || batch->chained || CALL(cuEventQuery, (batch->begin)) != CUDA_NOT_READY;
            if (batch->begun)
                region_gate_busy(queue->gpu, most(batch->start, queue->last_end), now, !turn_is_governed(now));
            else /* the stream waits for something else, or the GPU is not ours at the moment */
                batch->start = now;
            return NULL;
        }
        finish(queue, batch, now);
        batch_at(queue, queue->first + 1)->launched = now; /* waited for nothing but this one until now */
    }
    if (queue->recording == BEGIN)
        batch_at(queue, queue->next)->start = now;
    bool idle = queue->open && !queue->entering && !queue->recording;
    return idle && (ask || !queue->together) ? close_tail(queue, ask, now) : NULL;
}

PER_PROCESS static struct { CUcontext context; CUstream stream; } helped; /* where the helper records an event */

/* By the helper, which lets go of the lock meanwhile: the queue may be gone after that. */
static void record_tail(struct queue *queue, CUevent event) {
    CUcontext context = helped.context = queue->context;
    CUstream stream = helped.stream = queue->stream;
    bool entered = !CALL(cuCtxPushCurrent_v2, (context));
    gate_let_go();
    flight_record(queue, stream, event);
    gate_hold();
    if (entered)
        CALL(cuCtxPopCurrent_v2, (&context));
    helped.context = NULL;
}

/* A thread is at a launch on its stream or at an event of it, or an event is still to be recorded there. */
static bool is_used(const struct queue *queue) { return queue->open || queue->entering || queue->recording; }

/* The program has ended it meanwhile. */
static void end_stream(struct queue *queue) {
    CUcontext context = queue->context;
    CUstream stream = queue->stream;
    if (!queue->doomed || is_used(queue)) return;
    queue->doomed = false;
    queue->stream = DESTROYED;
    queue_changed(queue);
    if (CALL(cuCtxPushCurrent_v2, (context))) return;
    CALL(cuStreamDestroy_v2, (stream));
    CALL(cuCtxPopCurrent_v2, (&context));
}

bool flight_is_helped(void) { return helped.context != NULL; }

static bool is_helped(CUcontext context, CUstream stream) {
    bool is_default = KEY(helped.stream) <= KEY(STREAM_PER_THREAD); /* whose commands spoil captures of others */
    return helped.context && (context ? context == helped.context : stream == helped.stream || is_default);
}

/* It may be at a full stream, which may wait for what our caller does next: that goes on after a while. */
void flight_await_helper(CUcontext context, CUstream stream) {
    uint64_t began = clock_now();
    while (is_helped(context, stream) && (context || clock_now() - began < PATIENCE_NS)) {
        gate_let_go();
        clock_sleep(POLL_NS + (clock_now() - began) / 8);
        gate_hold();
    }
}

/* Of very many, as many as take some microseconds: the others' turn comes with the next looks. */
static void poll_some(int gpu, bool ask, uint64_t now) {
    for (uint64_t left = least(queues_in_use(gpu), AT_ONCE); left; left--) {
        struct queue *queue = queue_next_to_poll(gpu);
        if (!queue) return;
        CUevent event = poll_queue(queue, ask, now);
        queue_changed(queue);
        if (event)
            record_tail(queue, event);
        else
            end_stream(queue);
        if (gate_is_stopped()) return;
        now = event ? clock_now() : now;
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

void flight_poll_all(void) {
    for (int gpu = 0; gpu < fgpu_limits.count && !gate_is_stopped(); gpu++)
        poll_some(gpu, true, clock_now());
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

bool flight_begins(const struct queue *queue) { return queue->recording == BEGIN; }

static CUevent open_batch(struct queue *queue, uint64_t now) {
    struct batch *batch = batch_at(queue, queue->next);
    if (!batch->end && !CALL(cuCtxPushCurrent_v2, (queue->context))) {
        CALL(cuEventCreate, (&batch->begin, EVENT_BLOCKING_SYNC));
        CALL(cuEventCreate, (&batch->end, EVENT_BLOCKING_SYNC));
        CALL(cuCtxPopCurrent_v2, (&queue->context));
    }
    batch->launched = batch->start = now;
    batch->launches = 0;
    batch->begun = false;
    batch->behind = queue->told_to_wait && queue->seen && !queue->recording;
    batch->mixed = queue->told_to_wait && !batch->behind;
    batch->chained = queue->first < queue->next && !batch->behind;
    batch->late = queue->entering;
    queue->open = true;
    if (batch->chained || !batch->begin) return NULL;
    atomic_store_explicit(&queue->recording, BEGIN, memory_order_relaxed);
    return batch->begin;
}

CUevent flight_enter(struct queue *queue, bool for_turns, uint64_t now) {
    queue->beside = queue_sums(queue->gpu)->working > queue->counted.working; /* events tell how far they are */
    queue->together = for_turns && !queue->beside && launch_ns[queue->gpu] && launch_ns[queue->gpu] < SHORT_NS;
    queue->due = now + flight_ahead(queue->gpu, now) + launch_ns[queue->gpu];
    CUevent begin = NULL;
    if (!queue->open && queue->next - queue->first < RING - 1)
        begin = open_batch(queue, now);
    else if (!queue->open) { /* it goes ahead all the same: the last batch ends after it, and is paid as a whole */
        queue->next--;
        queue->open = true;
        batch_at(queue, queue->next)->mixed |= queue->told_to_wait;
    }
    queue->told_to_wait = false;
    queue->entering++;
    queue_changed(queue);
    return begin;
}

/* The stream is about to be told to wait for something: a batch ends here, and the next one is seen to wait. Where that
 * is so at every launch, as of streams that wait for each other, a few do at once, then one in the time of a batch. */
CUevent flight_wait(struct queue *queue, uint64_t now) {
    bool at_rest = !queue->entering && !queue->recording;
    CUevent end = NULL;
    if (queue->told_to_wait) return NULL; /* since the last launch */
    queue->seen = queue->split_at <= now && queue->next + queue->open - queue->first < RING - 1 && at_rest;
    if (queue->seen && queue->open)
        end = close_batch(queue);
    if (queue->seen)
        queue->split_at = most(queue->split_at, now - SPLITS * BATCH_NS) + BATCH_NS;
    queue->told_to_wait = !queue->open;
    if (queue->open)
        batch_at(queue, queue->next)->mixed = true;
    queue_changed(queue);
    queues_trim();
    return end;
}

/* Close the batch if the stream had nothing else to do, or if it holds about a millisecond of work. Two events cost as
 * much as a short kernel: where turns decide, in which pauses are not free, short ones are measured together.
 *
 * Kernels of threads that are at a launch meanwhile come before its event or after: the next batch begins there. */
static CUevent close_if_due(struct queue *queue) {
    const struct batch *batch = batch_at(queue, queue->next);
    uint64_t mean = launch_ns[queue->gpu], enough = mean ? least(BATCH_NS / mean, MAX_LAUNCHES) : 1;
    bool due = (queue->first == queue->next && !queue->together) || batch->launches >= enough || batch->behind
               || (batch->late && !queue->entering);
    unsigned char recording = END;
    if (!queue->open || !batch->launches || !due) return NULL;
    if (queue->entering && queue->next + 1 - queue->first >= RING - 1) return NULL; /* no room for the next one */
    if (queue->recording && (atomic_compare_exchange_strong(&queue->recording, &recording, END_AGAIN) || recording))
        return NULL;
    CUevent end = close_batch(queue);
    if (queue->entering)
        open_batch(queue, clock_now());
    return end;
}

CUevent flight_leave(struct queue *queue) {
    queue->entering--;
    if (queue->open) /* the context may be gone */
        batch_at(queue, queue->next)->launches++;
    CUevent end = close_if_due(queue);
    queue_changed(queue);
    return end;
}

/* Of one queue one at a time. The driver makes its caller wait while the stream has as many commands as it takes. */
void flight_record(struct queue *queue, CUstream stream, CUevent event) {
    while (event) {
        CALL(cuEventRecord, (event, stream));
        unsigned char recording = END;
        if (queue->recording == BEGIN) { /* while others wait */
            atomic_store_explicit(&queue->recording, NOTHING, memory_order_release);
            return;
        }
        if (atomic_compare_exchange_strong(&queue->recording, &recording, NOTHING)) return;
        gate_hold();
        queue->recording = NOTHING;
        event = close_if_due(queue);
        queue_changed(queue);
        gate_let_go();
    }
}

bool flight_is_capturing(CUstream stream) {
    int status = 0;
    return CALL(cuStreamIsCapturing, (stream, &status)) || status; /* an error: another stream's capture forbids us */
}

/* Its work goes on, and its events with it. One on which a thread launches or records may be full, and its caller does
 * not wait for that: the helper ends it after them. */
bool flight_forget_stream(CUstream stream) {
    struct queue *queue = KEY(stream) > KEY(STREAM_PER_THREAD) ? queues_find(stream) : NULL;
    if (!queue) return true;
    queue->doomed = is_used(queue);
    queue->stream = queue->doomed ? stream : DESTROYED;
    queue_changed(queue);
    return !queue->doomed;
}

void flight_forget_context(CUcontext context) {
    flight_await_helper(context, NULL);
    queues_drop_context(context);
}
