/* Who may use a GPU, and for how long. Times are nanoseconds of one monotonic clock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { SHARE_WHOLE = 10000 };

struct member { /* a session on one GPU */
    struct member *next;
    unsigned share;        /* hundredths of a percent */
    bool burst;            /* may use what others leave idle */
    unsigned busy, wants;  /* processes with work in flight; with launches to make */
    int64_t bucket_ns;     /* GPU time that it may use; negative is debt */
    uint64_t virtual_ns;   /* GPU time used, divided by the share */
    uint64_t charged_ns, unheld_ns; /* of that, far from any turn of its own */
    uint64_t idle_since;
    uint64_t released_at;  /* its last turn's end */
    uint64_t overrun_since; /* the same, while what it launched is not done; 0: nothing that may be waited for */
    bool is_spare;         /* its turn, or the last one, is of what others leave idle */
    bool waker;            /* has come back from a pause and had no turn since */
    uint64_t until;        /* end of its turn, as published; 0: none, UINT64_MAX: parked */
};
struct run_queue {
    struct member *members, *holder;
    uint64_t at;           /* charged up to */
    uint64_t turn_began, virtual_ns;
    void (*publish)(struct member *); /* `until` has changed */
};

void queue_add(struct run_queue *queue, struct member *member, uint64_t now);
void queue_remove(struct run_queue *queue, struct member *member, uint64_t now);
/* A member's share becomes another. Call queue_run afterwards. */
void queue_share(struct run_queue *queue, struct member *member, unsigned share, uint64_t now);
/* A member's `busy` or `wants` becomes what is given. Call queue_run afterwards. */
void queue_change(struct run_queue *queue, struct member *member, unsigned busy, unsigned wants, uint64_t now);
/* End, extend and begin turns; return when to call again at the latest. */
uint64_t queue_run(struct run_queue *queue, uint64_t now);
