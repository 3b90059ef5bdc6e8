/* The queues of this process, found by context and stream. What a launch costs must not grow with their number: those
 * in use are listed by GPU and counted as they change; of the idle ones the longest unused go beyond some. */
#include <stdlib.h>
#include <string.h>

#include "queue.h"

HELPER(cuEventDestroy_v2, (CUevent));

enum { BUCKET_BITS = 12, BUCKETS = 1 << BUCKET_BITS, IDLE = 256, WAITING_NS = 5000000, BEHIND_NS = 100000000 };

PER_PROCESS static struct queue *table[BUCKETS];
PER_PROCESS static struct queue_list in_use[MAX_GPUS], idle;
PER_PROCESS static struct queue_sums sums[MAX_GPUS];

static bool waits(const struct queue *queue) {
    const struct batch *batch = &queue->ring[queue->first % RING];
    return (queue->first < queue->next || queue->recording == BEGIN) && !batch->chained && !batch->begun;
}

bool queue_is_behind(const struct queue *queue) { return waits(queue) && queue->ring[queue->first % RING].behind; }

bool queue_has_waited(const struct queue *queue, uint64_t ns) {
    const struct batch *batch = &queue->ring[queue->first % RING];
    return waits(queue) && batch->start > batch->launched + ns;
}

static void unlist(struct queue *queue) {
    struct queue_list *list = queue->list;
    *(queue->before ? &queue->before->after : &list->head) = queue->after;
    *(queue->after ? &queue->after->before : &list->tail) = queue->before;
    list->count--;
}

static void append(struct queue_list *list, struct queue *queue) {
    queue->list = list;
    queue->before = list->tail;
    queue->after = NULL;
    *(list->tail ? &list->tail->after : &list->head) = queue;
    list->tail = queue;
    list->count++;
}

static void move(struct queue_list *list, struct queue *queue) {
    unlist(queue);
    append(list, queue);
}

static struct queue_sums sums_of(struct queue *queue) {
    struct queue_sums own = {.working = in_flight(queue), .closed = queue->first < queue->next};
    if (waits(queue)) {
        own.behind = queue_is_behind(queue); /* maybe another of our streams, while the GPU is not ours */
        own.working = !queue_has_waited(queue, own.behind ? BEHIND_NS : WAITING_NS);
        own.behind &= own.working;
    }
    own.launches = own.working && queue->open ? batch_at(queue, queue->next)->launches : 0;
    for (uint64_t i = queue->first; own.working && i < queue->next; i++)
        own.launches += batch_at(queue, i)->launches;
    return own;
}

void queue_changed(struct queue *queue) {
    struct queue_sums own = sums_of(queue), *all = &sums[queue->gpu];
    bool is_idle = !in_flight(queue) && !queue->entering && !queue->recording && !queue->doomed;
    struct queue_list *list = is_idle ? &idle : &in_use[queue->gpu];
    all->working += own.working - queue->counted.working;
    all->behind += own.behind - queue->counted.behind;
    all->closed += own.closed - queue->counted.closed;
    all->launches += own.launches - queue->counted.launches;
    queue->counted = own;
    if (queue->list != list)
        move(list, queue);
}

/* Streams that were created have handles of their own; the others are several, by context and by thread. */
static unsigned bucket_of(CUcontext context, CUstream stream) {
    uint64_t key = KEY(stream);
    if (key <= KEY(STREAM_PER_THREAD))
        key += KEY(context) ^ (stream == STREAM_PER_THREAD ? (uint64_t)(uintptr_t)pthread_self() : 0);
    return (unsigned)(key * 0x9E3779B97F4A7C15ull >> (64 - BUCKET_BITS));
}

struct queue *flight_of(const struct place *here, CUstream stream) {
    unsigned bucket = bucket_of(here->context, stream);
    struct queue *queue = table[bucket];
    for (; queue; queue = queue->next_in_bucket) {
        bool mine = stream != STREAM_PER_THREAD || pthread_equal(queue->thread, pthread_self());
        if (queue->context == here->context && queue->stream == stream && mine)
            break;
    }
    if (!queue && (queue = malloc(sizeof *queue))) {
        *queue = (struct queue){.next_in_bucket = table[bucket], .context = here->context, .stream = stream,
                                .thread = pthread_self(), .gpu = here->gpu, .bucket = bucket};
        table[bucket] = queue;
        append(&idle, queue);
    } else if (queue && queue->list == &idle) {
        move(&idle, queue);
    }
    return queue;
}

struct queue *queue_next_to_poll(int gpu) {
    struct queue *queue = in_use[gpu].head;
    if (queue)
        move(&in_use[gpu], queue);
    return queue;
}

unsigned queues_in_use(int gpu) { return in_use[gpu].count; }

const struct queue_sums *queue_sums(int gpu) { return &sums[gpu]; }

/* Of many, among those that were not polled for the longest. */
uint64_t queues_began(int gpu, uint64_t now) {
    unsigned left = AT_ONCE;
    for (struct queue *queue = in_use[gpu].head; queue && left; queue = queue->after, left--)
        if (queue->counted.working)
            now = least(now, batch_at(queue, queue->first)->start);
    return now;
}

static void destroy(struct queue *queue) {
    struct queue **at = &table[queue->bucket];
    while (*at != queue)
        at = &(*at)->next_in_bucket;
    *at = queue->next_in_bucket;
    for (int i = 0; i < RING && queue->ring[i].end; i++) {
        CALL(cuEventDestroy_v2, (queue->ring[i].begin));
        CALL(cuEventDestroy_v2, (queue->ring[i].end));
    }
    unlist(queue);
    free(queue);
}

/* Two for each launch, which makes one at most: so many may become idle at once that it would take long. */
void queues_trim(void) {
    for (int i = 0; i < 2 && idle.count > IDLE; i++)
        destroy(idle.head);
}

struct queue *queues_find(CUstream stream) {
    struct queue *queue = table[bucket_of(NULL, stream)];
    while (queue && queue->stream != stream)
        queue = queue->next_in_bucket;
    return queue;
}

/* Its events are gone with it. A thread may still be at a launch on it. */
void queues_drop_context(CUcontext context) {
    for (int i = 0; i < BUCKETS; i++)
        for (struct queue *queue = table[i]; queue; queue = queue->next_in_bucket) {
            if (queue->context != context)
                continue;
            queue->context = NULL;
            queue->stream = DESTROYED;
            queue->open = queue->doomed = false;
            queue->first = queue->next = 0;
            memset(queue->ring, 0, sizeof queue->ring);
            queue_changed(queue);
        }
}
