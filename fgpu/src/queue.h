/* The queues of this process: one per stream of a context that was launched on. The caller holds the gate's lock. */
#pragma once

#include "fgpu.h"

enum { RING = 5, AT_ONCE = 128 };
#define DESTROYED ((CUstream)UINTPTR_MAX)

struct batch {
    CUevent begin, end;
    uint64_t launched, start; /* host time; not yet begun at `start` */
    unsigned launches;
    bool chained; /* starts at the end of the batch before */
    bool begun;
    bool behind; /* its stream was told to wait before its first launch */
    bool mixed;  /* or between its launches, or with no event: in flight does not mean at work */
    bool late;   /* threads were at a launch when the one before it was closed: a kernel of theirs is in either */
};
enum recording { NOTHING, BEGIN, END, END_AGAIN };
struct queue_list {
    struct queue *head, *tail;
    unsigned count;
};
struct queue_sums { /* over the queues of one GPU */
    unsigned working; /* have something on the GPU, or about to be */
    unsigned behind;  /* of those: wait as they were told to */
    unsigned closed;  /* have a batch in flight that an event closes */
    unsigned launches; /* of the working ones */
};
struct queue {
    struct queue *next_in_bucket, *before, *after;
    struct queue_list *list; /* that it is in: of its GPU's queues in use, or of the idle ones */
    struct queue_sums counted; /* its part of the sums */
    CUcontext context;
    CUstream stream;
    pthread_t thread; /* the per-thread stream is another one in every thread */
    int gpu;
    uint64_t last_end;
    unsigned bucket;
    unsigned entering;    /* threads between the gate and the end of their launch: a batch is open for them */
    _Atomic unsigned char recording; /* an event of it, without the lock; END_AGAIN: then the next one's end is due */
    uint64_t first, next; /* batches in flight: ring[first % RING] ... ring[next % RING - 1] */
    uint64_t split_at;    /* the next batch may end where its stream is told to wait */
    bool together;        /* its launches are short, and measured together */
    bool beside;          /* others were at work at its last launch, which may wait for those */
    uint64_t due;         /* when that is done, in the order of all launches */
    bool told_to_wait;    /* since its last launch, with nothing open */
    bool seen;            /* and the next batch is to have an event for that */
    bool open;            /* ring[next % RING] has launches that no event closes yet */
    bool doomed;          /* the helper is to end its stream, when nobody is at it */
    struct batch ring[RING];
};

static inline struct batch *batch_at(struct queue *queue, uint64_t position) { return &queue->ring[position % RING]; }
static inline bool in_flight(const struct queue *queue) { return queue->first < queue->next || queue->open; }
bool queue_is_behind(const struct queue *queue); /* its stream waits as it was told to */
/* Its stream has been waiting for so long for something that is not on the GPU, or on another. */
bool queue_has_waited(const struct queue *queue, uint64_t ns);

void queue_changed(struct queue *queue); /* count it anew, and put it where it belongs */
struct queue *queue_next_to_poll(int gpu); /* of those in use, in turn; NULL: none */
unsigned queues_in_use(int gpu);
const struct queue_sums *queue_sums(int gpu);
uint64_t queues_began(int gpu, uint64_t now); /* when the first of what works on the GPU was to start */
void queues_trim(void); /* give idle ones back, beyond some */
struct queue *queues_find(CUstream stream); /* one of a stream that was created; NULL: none is left */
void queues_drop_context(CUcontext context);
