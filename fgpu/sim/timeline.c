/* The simulated GPUs' time. Contexts of different processes share a GPU by time slices, round robin among those that
 * have work; a switch costs time in which nothing runs; a long kernel is interrupted when its slice ends, or with
 * preempt=0 not before its own end. What runs when is worked out up to the present whenever somebody asks. */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

enum { RESERVE = 1024, SECOND_NS = 1000000000, LEAST_NAP_NS = 5000, SWEEP_NS = 5000000 };
#define GPU_KEY(gpu) (0x47505500ull + (uint64_t)(gpu))

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static struct sim_item *item_of(const struct sim_context *c, uint64_t seq)
{
    return &sim->item[c - sim->context][seq % SIM_ITEMS];
}

static void count(uint64_t second[4], uint64_t busy_ns[4], uint64_t from, uint64_t to)
{
    for (uint64_t at = from; at < to;) {
        uint64_t which = at / SECOND_NS, end = least((which + 1) * SECOND_NS, to);
        if (second[which % 4] != which)
            busy_ns[which % 4] = 0;
        second[which % 4] = which;
        busy_ns[which % 4] += end - at;
        at = end;
    }
}

/* The context's first kernel that may run; NULL if there is none, and `*soon` no later than when there will be one. */
static struct sim_item *first_ready(const struct sim_context *c, uint64_t now, uint64_t *soon)
{
    for (uint64_t seq = c->head; seq < c->next; seq++) {
        struct sim_item *item = item_of(c, seq);
        if (item->left && item->ready <= now)
            return item;
        if (item->left)
            *soon = least(*soon, item->ready);
    }
    return NULL;
}

/* The next context, round robin, that has work: not `skipped`. */
static int next_with_work(int gpu, int from, int skipped, uint64_t now, uint64_t *soon)
{
    for (int i = 1; i <= SIM_CONTEXTS; i++) {
        int index = (from + i) % SIM_CONTEXTS;
        const struct sim_context *c = &sim->context[index];
        if (index != skipped && c->process && c->gpu == gpu && c->head < c->next && first_ready(c, now, soon))
            return index;
    }
    return -1;
}

/* What runs at this moment; NULL: nothing before `*soon`. */
static struct sim_item *pick(int gpu, uint64_t *soon)
{
    struct sim_gpu *g = &sim->gpu[gpu];
    struct sim_context *c = g->current ? &sim->context[g->current - 1] : NULL;
    struct sim_item *item = c && c->process ? first_ready(c, g->at, soon) : NULL;
    if (item && (g->switching || g->slice || (g->in_kernel && !sim_config.preempt)))
        return item;
    int current = g->current - 1, other = next_with_work(gpu, current < 0 ? SIM_CONTEXTS - 1 : current, current, g->at, soon);
    if (other < 0) {
        g->slice = sim_config.slice_ns;
        return item;
    }
    if (!item && c && c->process && g->yield) { /* it may come back */
        *soon = least(*soon, g->at + g->yield);
        g->yield -= *soon - g->at;
        return NULL;
    }
    g->switching = g->current ? sim_config.switch_ns : 0;
    g->current = other + 1;
    g->slice = sim_config.slice_ns;
    g->in_kernel = 0;
    return first_ready(&sim->context[other], g->at, soon);
}

static void execute(int gpu, struct sim_item *item, uint64_t ns)
{
    struct sim_gpu *g = &sim->gpu[gpu];
    struct sim_context *c = &sim->context[g->current - 1];
    count(g->second, g->busy_ns, g->at, g->at + ns);
    count(c->second, c->busy_ns, g->at, g->at + ns);
    g->busy_total += ns;
    c->executed += ns;
    g->at += ns;
    g->slice -= least(g->slice, ns);
    g->yield = sim_config.yield_ns;
    item->left -= ns;
    item->end = g->at;
    g->in_kernel = item->left > 0;
    while (c->head < c->next && !item_of(c, c->head)->left)
        c->head++;
}

static void advance_to(int gpu, uint64_t to)
{
    struct sim_gpu *g = &sim->gpu[gpu];
    while (g->at < to) {
        uint64_t soon = to;
        struct sim_item *item = pick(gpu, &soon);
        uint64_t room = to - g->at;
        if (!item) {
            g->at = soon;
        } else if (g->switching) {
            room = least(g->switching, room);
            g->switching -= room;
            g->at += room;
        } else {
            execute(gpu, item, least(item->left, g->slice ? least(g->slice, room) : room));
        }
    }
}

void sim_advance(int gpu)
{
    advance_to(gpu, sim_now());
}

/* The context of this process on the GPU, made if need be; -1: too many. The caller holds the lock. */
static int context_of(int gpu)
{
    for (int attempt = 0, free = -1; attempt < 2; attempt++) {
        for (int i = 0; i < SIM_CONTEXTS; i++) {
            if (sim->context[i].process == sim_me() + 1 && sim->context[i].gpu == gpu)
                return i;
            if (free < 0 && !sim->context[i].process)
                free = i;
        }
        if (free >= 0) {
            sim->context[free] = (struct sim_context){.process = sim_me() + 1, .gpu = gpu};
            return free;
        }
        sim_sweep();
    }
    return -1;
}

struct sim_ticket sim_launch(int gpu, uint64_t ready, uint64_t ns)
{
    int shared = sim_config.gpu[gpu].shared;
    struct sim_ticket ticket = {0, 0};
    sim_lock();
    int index = context_of(shared);
    struct sim_context *c = &sim->context[index < 0 ? 0 : index];
    if (index >= 0 && (ns || c->head < c->next)) {
        sim_advance(shared);
        ticket = (struct sim_ticket){index + 1, c->next};
        *item_of(c, c->next++) = (struct sim_item){ready, ns ? ns : 1, 0};
    }
    sim_unlock();
    return ticket;
}

static struct sim_context *context(struct sim_ticket ticket) { return &sim->context[ticket.context - 1]; }

void sim_grow(struct sim_ticket ticket, uint64_t ns)
{
    sim_lock();
    if (ticket.context && item_of(context(ticket), ticket.seq)->left)
        item_of(context(ticket), ticket.seq)->left += ns;
    sim_unlock();
}

static bool done(struct sim_ticket ticket)
{
    const struct sim_context *c = context(ticket);
    return ticket.seq < c->head || ticket.seq >= c->next || !item_of(c, ticket.seq)->left;
}

bool sim_is_done(struct sim_ticket ticket, uint64_t *when)
{
    if (!ticket.context)
        return true;
    sim_lock();
    sim_advance(context(ticket)->gpu);
    bool is_done = done(ticket);
    if (is_done && when)
        *when = item_of(context(ticket), ticket.seq)->end;
    sim_unlock();
    return is_done;
}

/* No later than the kernel can end, as things are: exact where nobody else has work. The caller holds the lock. */
static uint64_t earliest_end(struct sim_ticket ticket)
{
    const struct sim_context *c = context(ticket);
    const struct sim_gpu *g = &sim->gpu[c->gpu];
    uint64_t ns = g->switching, soon = UINT64_MAX, ready = 0;
    for (uint64_t seq = c->head; seq <= ticket.seq; seq++) {
        const struct sim_item *item = item_of(c, seq);
        ns += item->left;
        ready = item->left ? most(ready, item->ready) : ready;
    }
    if (g->current && g->current != ticket.context && sim->context[g->current - 1].process) {
        const struct sim_item *theirs = first_ready(&sim->context[g->current - 1], g->at, &soon);
        ns += theirs ? sim_config.switch_ns + least(theirs->left, g->slice) : 0;
    }
    ns = most(ns, ready > g->at ? ready - g->at : 0);
    return g->at + most(ns, LEAST_NAP_NS);
}

static void nap(int gpu, uint64_t until)
{
    static uint64_t swept;
    uint64_t now = sim_now();
    uint32_t seen = sim->gpu[gpu].changes;
    sim_unlock();
    if (sim_is_virtual()) {
        sim_wait(GPU_KEY(gpu), &sim->gpu[gpu].changes, seen, until);
    } else if (until > now) {
        uint64_t ns = least(until - now, 20000000);
        struct timespec patience = {(time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)};
        syscall(SYS_futex, &sim->gpu[gpu].changes, FUTEX_WAIT, seen, &patience, NULL, 0);
    }
    sim_lock();
    if (!sim_is_virtual() && now - swept > SWEEP_NS) {
        swept = now;
        sim_sweep();
    }
}

void sim_wait_for(struct sim_ticket ticket)
{
    if (!ticket.context)
        return;
    sim_lock();
    for (sim_advance(context(ticket)->gpu); !done(ticket); sim_advance(context(ticket)->gpu))
        nap(context(ticket)->gpu, earliest_end(ticket));
    sim_unlock();
}

/* For one more of every thread. */
void sim_await_room(int gpu)
{
    sim_lock();
    int index = context_of(sim_config.gpu[gpu].shared);
    const struct sim_context *c = &sim->context[index < 0 ? 0 : index];
    struct sim_ticket oldest = {index + 1, c->head};
    bool full = index >= 0 && c->next - c->head > SIM_ITEMS - RESERVE;
    sim_unlock();
    if (full)
        sim_wait_for(oldest);
}

void sim_wait_for_all(int gpu)
{
    sim_lock();
    int index = context_of(sim_config.gpu[gpu].shared);
    uint64_t end = index < 0 ? 0 : sim->context[index].next;
    sim_unlock();
    if (end)
        sim_wait_for((struct sim_ticket){index + 1, end - 1});
    while (end && sim->context[index].head < end) /* what was held back longer */
        sim_wait_for((struct sim_ticket){index + 1, sim->context[index].head});
}

uint64_t sim_executed(int gpu)
{
    sim_lock();
    int shared = sim_config.gpu[gpu].shared, index = context_of(shared);
    sim_advance(shared);
    uint64_t ns = index < 0 ? 0 : sim->context[index].executed;
    sim_unlock();
    return ns;
}

void sim_end_work(int process)
{
    for (int i = 0; i < SIM_CONTEXTS; i++) {
        struct sim_context *c = &sim->context[i];
        if (c->process != process + 1)
            continue;
        struct sim_gpu *g = &sim->gpu[c->gpu];
        sim_advance(c->gpu);
        c->process = 0;
        if (g->current == i + 1)
            g->current = g->in_kernel = 0;
        g->changes++;
        sim_wake_all(GPU_KEY(c->gpu));
        syscall(SYS_futex, &g->changes, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
}
