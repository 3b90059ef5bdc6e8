/* Exclusive turns in the order of virtual time (start-time fair queueing; virtual time = time used / share), charged by
 * occupancy: from the grant until everything that was launched is done. Two relaxations: a session that comes back from
 * a pause need not wait for all of a kernel that outlasts its turn, and who is alone keeps its turn.
 *
 * Each session has a bucket of GPU time, filled at its share. `cap`: turns need a positive bucket. `burst`: turns that
 * no session with a positive bucket wants go to the lowest virtual time, not beside a kernel that outlasts its turn,
 * and end when a session with a positive bucket asks.
 *
 * What a session says changes its own account alone: it may delay others once for each turn that it has had and pays
 * for, and makes nobody else's time cheaper. */
#include "run_queue.h"

#include <stddef.h>

#include "../src/grant.h"

#define MS 1000000ull
static const uint64_t TURN_NS = 11 * MS, LEAST_TURN_NS = 2 * MS;
static const uint64_t EXTEND_NS = 5 * MS;                            /* a turn is extended so long before its end */
static const uint64_t WAKER_DRAIN_NS = 5 * MS, DRAIN_NS = 100 * MS;  /* wait for a kernel that outlasts its turn */
static const uint64_t SPARE_DRAIN_NS = 1000 * MS;                    /* the same before a turn of spare time */
static const uint64_t LATE_NS = 5 * MS;                              /* until word of a turn's launches is here */
static const uint64_t PAUSE_NS = 20 * MS;                            /* of a session that counts as coming back */
static const uint64_t SAVED_NS = 100 * MS, OWED_NS = 1000 * MS;      /* buckets, times the share: idle, and waiting */
static const uint64_t DEBT_NS = 300 * MS;                            /* with more, it has no part of a price */
static const int64_t LARGEST_DEBT_NS = 1000000000000000;             /* eleven days; times SHARE_WHOLE it fits */
static const uint64_t STRAY_NS = 1000 * MS;                          /* after its turn, it is shown to the admin */
#define NEVER UINT64_MAX
#define PARKED UINT64_MAX

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }
static int64_t part(const struct member *m, uint64_t ns) { return (int64_t)(ns * m->share / SHARE_WHOLE); }
static bool is_idle(const struct member *m) { return !m->busy && !m->wants; }

static bool occupies(const struct run_queue *q, const struct member *m) {
    return m->busy || (m == q->holder && m->wants);
}

/* It had a turn, and what it launched in it is not done. */
static bool overruns(const struct run_queue *q, const struct member *m) {
    return m != q->holder && m->busy && m->overrun_since;
}

/* It is busy without a turn, or for long after its last one: by a lie, past the gate, or by very long kernels. */
static bool is_stray(const struct run_queue *q, const struct member *m, uint64_t now) {
    return m != q->holder && m->busy && now - m->overrun_since > STRAY_NS;
}

/* The holder and those that overrun share the GPU's time and its price. Who is deep in debt, or uses spare time, does
 * not count: what one session pays less, another then pays from its own share. */
static bool has_part(const struct run_queue *q, const struct member *m) {
    if (m == q->holder) return occupies(q, m);
    return overruns(q, m) && !m->is_spare && m->bucket_ns > -(int64_t)DEBT_NS;
}

/* Debt by spare time is small: who owns that time takes it back by its own bucket. */
static void pay(struct member *m, uint64_t ns) {
    int64_t floor = m->is_spare ? -part(m, OWED_NS) : -LARGEST_DEBT_NS, left = m->bucket_ns - (int64_t)ns;
    m->bucket_ns = left > floor ? left : m->bucket_ns < floor ? m->bucket_ns : floor;
    m->virtual_ns += ns * SHARE_WHOLE / m->share;
    m->charged_ns += ns;
}

/* Pay the shares in, and charge who occupied the GPU. Who says so without a turn pays in full, and nobody pays less.
 * Of a time in which the arbiter stood still, what sessions wait for it counts: after that they go on without. */
static void charge(struct run_queue *q, uint64_t now) {
    uint64_t passed = now > q->at ? least(now - q->at, GRANT_STALE_NS) : 0, parts = 0;
    for (const struct member *m = q->members; m; m = m->next)
        parts += has_part(q, m);
    for (struct member *m = q->members; m; m = m->next) {
        bool is_held = m == q->holder || overruns(q, m);
        uint64_t cost = is_held ? passed / (parts + !has_part(q, m)) : passed;
        int64_t most_saved = part(m, m->wants && m != q->holder ? OWED_NS : SAVED_NS);
        if (m->bucket_ns < most_saved) {
            m->bucket_ns += part(m, passed);
            m->bucket_ns = m->bucket_ns < most_saved ? m->bucket_ns : most_saved;
        }
        if (!occupies(q, m))
            continue;
        pay(m, cost);
        m->unheld_ns += is_stray(q, m, now) ? passed : 0;
    }
    q->at = most(q->at, now);
}

static void publish(const struct run_queue *q, struct member *m, uint64_t until) {
    if (m->until == until) return;
    m->until = until;
    q->publish(m);
}

static void release(struct run_queue *q, uint64_t now) {
    struct member *m = q->holder;
    m->released_at = now;
    m->overrun_since = m->busy ? now : 0;
    m->waker = false;
    q->holder = NULL;
    publish(q, m, 0);
}

static bool before(const struct member *a, const struct member *b) {
    bool a_owns = a->bucket_ns > 0, b_owns = b->bucket_ns > 0;
    return a_owns != b_owns ? a_owns : a->virtual_ns < b->virtual_ns;
}

/* Whose turn it should be; NULL if nobody may have one. */
static struct member *pick(const struct run_queue *q) {
    struct member *best = NULL;
    for (struct member *m = q->members; m; m = m->next)
        if (m->wants && (m->bucket_ns > 0 || m->burst) && (!best || before(m, best)))
            best = m;
    return best;
}

/* Whether another session may cut the holder's turn short. */
static bool has_preemptor(const struct run_queue *q) {
    bool is_spare = q->holder->bucket_ns <= 0;
    for (const struct member *m = q->members; m; m = m->next)
        if (m != q->holder && m->wants && m->bucket_ns > 0 && (is_spare || m->waker)) return true;
    return false;
}

/* End or extend the turn; return when to look again. */
static uint64_t tend(struct run_queue *q, uint64_t now) {
    struct member *m = q->holder, *next = pick(q);
    if (is_idle(m)) {
        if (next || (!m->burst && m->bucket_ns <= 0))
            release(q, now);
        else
            publish(q, m, PARKED);
        return NEVER;
    }
    if (m->until == PARKED) { /* it was parked, and works again */
        q->turn_began = now;
        publish(q, m, now + TURN_NS);
    }
    bool may_go_on = next == m || (!next && (m->burst || m->bucket_ns > 0));
    if (may_go_on && now + EXTEND_NS >= m->until) {
        m->is_spare = m->burst && m->bucket_ns <= 0;
        publish(q, m, now + TURN_NS);
    } else if (now >= m->until || (has_preemptor(q) && now >= q->turn_began + LEAST_TURN_NS)) {
        release(q, now);
    }
    if (!q->holder) return NEVER;
    uint64_t look = now + EXTEND_NS < m->until ? m->until - EXTEND_NS : m->until;
    return has_preemptor(q) ? least(look, q->turn_began + LEAST_TURN_NS) : look;
}

/* When those that outlast a turn of theirs have been waited for long enough: once for each turn, and nobody else is. */
static uint64_t allowed_at(const struct run_queue *q, const struct member *next) {
    uint64_t patience = next->bucket_ns <= 0 ? SPARE_DRAIN_NS : next->waker ? WAKER_DRAIN_NS : DRAIN_NS, at = 0;
    for (const struct member *m = q->members; m; m = m->next)
        if (m != next && overruns(q, m))
            at = most(at, m->overrun_since + patience);
    return at;
}

/* Begin a turn if one may begin; return when to look again if none does. */
static uint64_t begin(struct run_queue *q, uint64_t now) {
    uint64_t soon = NEVER;
    struct member *next = pick(q);
    if (!next || next->bucket_ns <= 0) /* somebody's bucket will be positive */
        for (const struct member *m = q->members; m; m = m->next)
            if (m->wants && m->bucket_ns <= 0)
                soon = least(soon, now + (uint64_t)-m->bucket_ns * SHARE_WHOLE / m->share + SHARE_WHOLE);
    uint64_t allowed = next ? allowed_at(q, next) : NEVER;
    if (!next || allowed > now) return least(soon, allowed);
    q->holder = next;
    q->turn_began = now;
    next->overrun_since = 0;
    next->is_spare = next->burst && next->bucket_ns <= 0;
    q->virtual_ns = most(q->virtual_ns, next->virtual_ns);
    publish(q, next, now + TURN_NS);
    return now + EXTEND_NS;
}

uint64_t queue_run(struct run_queue *q, uint64_t now) {
    uint64_t look = NEVER;
    charge(q, now);
    if (q->holder)
        look = tend(q, now);
    if (!q->holder)
        look = begin(q, now);
    return look;
}

void queue_add(struct run_queue *q, struct member *m, uint64_t now) {
    charge(q, now);
    m->next = q->members;
    m->virtual_ns = q->virtual_ns;
    m->idle_since = now;
    q->members = m;
}

void queue_remove(struct run_queue *q, struct member *m, uint64_t now) {
    charge(q, now);
    for (struct member **at = &q->members; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            break;
        }
    q->holder = q->holder == m ? NULL : q->holder;
}

void queue_share(struct run_queue *q, struct member *m, unsigned share, uint64_t now) {
    charge(q, now);
    m->share = share;
    if (m->bucket_ns > part(m, OWED_NS)) /* saved up by the greater share */
        m->bucket_ns = part(m, OWED_NS);
}

void queue_change(struct run_queue *q, struct member *m, unsigned busy, unsigned wants, uint64_t now) {
    charge(q, now);
    if (is_idle(m) && (busy || wants)) {
        m->virtual_ns = most(m->virtual_ns, q->virtual_ns);
        m->waker = now - m->idle_since >= PAUSE_NS;
    }
    if (!busy)
        m->overrun_since = 0;
    else if (!m->busy && m != q->holder && m->released_at && now - m->released_at < LATE_NS)
        m->overrun_since = m->released_at; /* it saw a turn that has just ended */
    m->busy = busy;
    m->wants = wants;
    if (is_idle(m))
        m->idle_since = now;
}
