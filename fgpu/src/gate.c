/* The SM share: whether a launch may go ahead now. The arbiter of the host says so by turns (turn.c); where none is,
 * the session's own budget of GPU time per frame of 100 ms does, in which overdrawn time is paid back from the next
 * frames. Either way little is in flight at a time, and nothing is launched that would begin after the turn.
 *
 * A thread of the hook, made at the first gated launch, looks when work in flight is about to end: it tells the
 * arbiter, and charges the budget, also when the program does something else meanwhile. */
#include <stdlib.h>

#include "fgpu.h"
#include "grant.h"

HELPER(cuThreadExchangeStreamCaptureMode, (int *));

enum { AHEAD_NS = 4000000, FULL_NS = 250000, SLACK_NS = 10000, IDLE_NS = 50000, LEAST_NAP_NS = 50000 };
enum { MOST_NAP_NS = 800000, DRAIN_LOOK_NS = 500000, LOOK_NS = 100000000, LAST_LOOKS = 100 };
#define SLICE_NS 200000000u
#define NEVER UINT64_MAX

PER_PROCESS static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
PER_PROCESS static struct { /* of one GPU */
    unsigned waiting;      /* threads that wait for a turn */
    unsigned pausing;      /* and those that wait until less is in flight */
    uint64_t launched, seen; /* when last, and when last as the helper saw it */
    uint64_t nap;
} state[MAX_GPUS];
PER_PROCESS static struct {
    bool started, stopped;
    uint64_t until;        /* asleep till then */
    _Atomic uint32_t word; /* changed to wake it */
} helper;

void gate_hold(void) { pthread_mutex_lock(&gate); }
void gate_let_go(void) { pthread_mutex_unlock(&gate); }
bool gate_is_stopped(void) { return helper.stopped; }

/* Tell the arbiter what has become of this process' work; return when to look again. */
static uint64_t look_after(int gpu, uint64_t now) {
    bool governed = turn_is_governed(now), active = state[gpu].launched != state[gpu].seen;
    state[gpu].seen = state[gpu].launched;
    bool goes_on = active && !state[gpu].waiting && turn_told(gpu) & STATE_BUSY; /* no need to look so often */
    state[gpu].nap = goes_on ? least(state[gpu].nap * 2, MOST_NAP_NS) : LEAST_NAP_NS;
    if (flight_any(gpu, now)) {
        if (governed && !(turn_told(gpu) & STATE_BUSY)) /* to an arbiter that was started anew */
            turn_tell(gpu, STATE_BUSY | STATE_WANTS);
        uint64_t ahead = flight_ahead(gpu, now);
        if (state[gpu].waiting && ahead) /* the next session waits for this, and it may end sooner than expected */
            return now + least(ahead + SLACK_NS, DRAIN_LOOK_NS);
        return now + most(ahead ? ahead + SLACK_NS : 0, state[gpu].nap);
    }
    if (state[gpu].waiting || state[gpu].pausing)
        turn_tell(gpu, STATE_WANTS);
    else if (now - state[gpu].launched >= IDLE_NS)
        turn_tell(gpu, 0);
    else
        return state[gpu].launched + IDLE_NS;
    return flight_is_held(gpu) ? now + MOST_NAP_NS : state[gpu].waiting || turn_told(gpu) ? now + LOOK_NS : NEVER;
}

static void *help(void *unused) {
    int mode = CAPTURE_MODE_RELAXED; /* our calls must not spoil a capture */
    gate_hold();
    CALL(cuThreadExchangeStreamCaptureMode, (&mode));
    while (!helper.stopped) {
        flight_poll_all();
        uint64_t now = clock_now(), until = NEVER;
        for (int gpu = 0; gpu < fgpu_limits.count && !helper.stopped; gpu++)
            if (fgpu_limits.gpu[gpu].sm_points < ALL_SMS)
                until = least(until, look_after(gpu, now));
        helper.until = until;
        uint32_t word = atomic_load(&helper.word);
        gate_let_go();
        system_sleep_on(&helper.word, word, until, KEY(&helper));
        gate_hold();
    }
    gate_let_go();
    return unused;
}

/* The driver is about to be taken down, or has been: it is not asked. What the helper asks now may take long. */
static void stop_helping(void) {
    gate_hold();
    helper.stopped = true;
    for (int left = LAST_LOOKS; flight_is_helped() && left; left--) {
        gate_let_go();
        clock_sleep(LOOK_NS / LAST_LOOKS);
        gate_hold();
    }
    for (int gpu = 0; gpu < fgpu_limits.count; gpu++)
        if (!flight_is_held(gpu))
            turn_tell(gpu, 0);
    gate_let_go();
}

/* The helper shall look no later than that. */
static void have_looked_at(uint64_t when) {
    if (!helper.started) {
        helper.started = true; /* without one, what ends is seen at the next launch */
        helper.until = 0;
        if (system_thread(help))
            atexit(stop_helping);
    } else if (helper.until > when) {
        helper.until = when;
        atomic_fetch_add(&helper.word, 1);
        system_wake(&helper.word, KEY(&helper));
    }
}

struct pass { /* of one launch through the gate */
    struct queue *queue;
    CUstream stream;
    CUevent begin;    /* to record before the launch */
    uint64_t wait_ns; /* 0: go, with a batch open if there is room for one */
    bool for_turn;    /* wait for the arbiter, not for the time to pass */
    bool blocked;     /* work on another stream is unfinished, and might be waiting for this launch */
    uint32_t word;
    int mode;
};

/* How long to wait, by the arbiter's word. */
static void ask_arbiter(int gpu, uint64_t ahead, uint64_t now, struct pass *pass) {
    pass->wait_ns = turn_pause(now);
    if (pass->wait_ns) return;
    pass->word = turn_word(gpu);
    pass->for_turn = !turn_allows(gpu, now + ahead);
    pass->wait_ns = pass->for_turn ? LOOK_NS : 0;
    if (!pass->for_turn) return;
    turn_tell(gpu, (turn_told(gpu) & STATE_BUSY) | STATE_WANTS);
    have_looked_at(now + ahead + SLACK_NS);
}

/* One look at the gate. `force`: go whatever it says. */
static CUresult look(int gpu, struct queue *queue, bool force, uint64_t now, struct pass *pass) {
    bool governed = turn_is_governed(now), full = flight_is_full(queue, now);
    uint64_t ahead = flight_ahead(gpu, now);
    if (ahead > AHEAD_NS && flight_waits_elsewhere(gpu, now))
        ahead = 0;
    pass->for_turn = false;
    if (governed)
        ask_arbiter(gpu, ahead, now, pass);
    else if (!region_gate_wait(gpu, now, &pass->wait_ns))
        return CUDA_SYSTEM_NOT_READY;
    pass->blocked = (!pass->wait_ns && !governed) || !flight_is_alone(queue);
    if (!pass->wait_ns && ahead > AHEAD_NS)
        pass->wait_ns = (ahead - AHEAD_NS / 2) / 2; /* it may be done sooner than expected */
    if (!pass->wait_ns && full)
        pass->wait_ns = FULL_NS;
    if (force)
        pass->wait_ns = 0;
    if (!pass->wait_ns && flight_begins(queue)) /* by another thread: its event comes before this launch */
        pass->wait_ns = LEAST_NAP_NS;
    if (pass->wait_ns) {
        pass->wait_ns = least(pass->wait_ns, SLICE_NS);
        return CUDA_SUCCESS;
    }
    bool begins = governed && !(turn_told(gpu) & STATE_BUSY);
    pass->begin = flight_enter(queue, governed, now);
    state[gpu].launched = now;
    if (governed)
        turn_tell(gpu, STATE_BUSY | STATE_WANTS);
    if (begins || !helper.started || helper.until == NEVER)
        have_looked_at(now + LEAST_NAP_NS);
    return CUDA_SUCCESS;
}

static unsigned *waiters(int gpu, const struct pass *pass) {
    return pass->for_turn ? &state[gpu].waiting : &state[gpu].pausing;
}

static CUresult try_to_pass(const struct place *here, CUstream stream, bool force, struct pass *pass) {
    LOCKED(gate);
    uint64_t now = clock_now();
    pass->queue = flight_of(here, stream);
    if (!pass->queue) return CUDA_OUT_OF_MEMORY;
    flight_poll(here->gpu, pass->queue, now);
    CUresult rc = look(here->gpu, pass->queue, force, now, pass);
    if (!rc && pass->wait_ns)
        ++*waiters(here->gpu, pass);
    return rc;
}

static void wait(int gpu, const struct pass *pass) {
    if (pass->for_turn)
        turn_sleep(gpu, pass->word, clock_now() + pass->wait_ns);
    else
        clock_sleep(pass->wait_ns);
    LOCKED(gate);
    --*waiters(gpu, pass);
}

/* Wait for the container's turn. Work recorded into a graph passes: it is gated when the graph is launched. A launch
 * that has waited long while work on another stream is still running goes ahead, since that may be waiting for it. */
static CUresult enter(CUstream stream, struct pass *pass) {
    struct place here;
    uint64_t began;
    *pass = (struct pass){.stream = stream, .mode = CAPTURE_MODE_RELAXED}; /* our calls must not spoil a capture */
    CUresult rc = fgpu_ready();
    if (rc || !fgpu_gated) return rc;
    rc = fgpu_place(stream, &here);
    if (rc || fgpu_limits.gpu[here.gpu].sm_points == ALL_SMS || flight_is_capturing(stream)) return rc;
    CALL(cuThreadExchangeStreamCaptureMode, (&pass->mode));
    rc = try_to_pass(&here, stream, false, pass);
    for (began = !rc && pass->wait_ns ? clock_now() : 0; !rc && pass->wait_ns;) {
        wait(here.gpu, pass);
        rc = try_to_pass(&here, stream, pass->blocked && clock_now() - began > PATIENCE_NS, pass);
    }
    if (rc) {
        CALL(cuThreadExchangeStreamCaptureMode, (&pass->mode));
        pass->queue = NULL;
    }
    flight_record(pass->queue, stream, pass->begin);
    return rc;
}

static CUresult leave(CUresult rc, struct pass *pass) {
    if (!pass->queue) return rc;
    gate_hold();
    CUevent end = flight_leave(pass->queue);
    gate_let_go();
    flight_record(pass->queue, pass->stream, end);
    CALL(cuThreadExchangeStreamCaptureMode, (&pass->mode));
    return rc;
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

/* A stream is told to wait, maybe for what the program does after its next launches: the gate sees where that is. */
static void begin_wait(CUstream stream) {
    struct place here;
    int mode = CAPTURE_MODE_RELAXED;
    if (fgpu_ready() || !fgpu_gated || fgpu_place(stream, &here)) return;
    if (fgpu_limits.gpu[here.gpu].sm_points == ALL_SMS || flight_is_capturing(stream)) return;
    CALL(cuThreadExchangeStreamCaptureMode, (&mode));
    gate_hold();
    struct queue *queue = flight_of(&here, stream);
    CUevent end = queue ? flight_wait(queue, clock_now()) : NULL;
    gate_let_go();
    flight_record(queue, stream, end);
    CALL(cuThreadExchangeStreamCaptureMode, (&mode));
}

#define WAITS(name, at, params, args) \
    WRAP(name, params) { \
        begin_wait(at); \
        return CALL(name, args); \
    }
#define BOTH_WAIT(name, params, args) \
    WAITS(name, stream, params, args) \
    WAITS(name##_ptsz, PER_THREAD(stream), params, args)
#define VALUE_WAIT(name, type) \
    BOTH_WAIT(name, (CUstream stream, CUdeviceptr at, type value, unsigned flags), (stream, at, value, flags))
#define BATCH_WAIT(name) \
    BOTH_WAIT(name, (CUstream stream, unsigned count, void *list, unsigned flags), (stream, count, list, flags))
BOTH_WAIT(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags))
VALUE_WAIT(cuStreamWaitValue32, uint32_t)
VALUE_WAIT(cuStreamWaitValue32_v2, uint32_t)
VALUE_WAIT(cuStreamWaitValue64, uint64_t)
VALUE_WAIT(cuStreamWaitValue64_v2, uint64_t)
BATCH_WAIT(cuStreamBatchMemOp)
BATCH_WAIT(cuStreamBatchMemOp_v2)
BOTH_WAIT(cuLaunchHostFunc, (CUstream stream, void *function, void *data), (stream, function, data))
BOTH_WAIT(cuLaunchHostFunc_v2, (CUstream stream, void *function, void *data, unsigned mode),
          (stream, function, data, mode))
BOTH_WAIT(cuStreamAddCallback, (CUstream stream, void *function, void *data, unsigned flags),
          (stream, function, data, flags))
BOTH_WAIT(cuWaitExternalSemaphoresAsync, (const void *list, const void *params, unsigned count, CUstream stream),
          (list, params, count, stream))

/* Over several GPUs there is no one gate to pass. Obsolete since CUDA 11.3. */
WRAP(cuLaunchCooperativeKernelMultiDevice, (CUlaunchParams *list, unsigned count, unsigned flags)) {
    CUresult rc = fgpu_ready();
    return rc ? rc : fgpu_gated ? CUDA_NOT_SUPPORTED : CALL(cuLaunchCooperativeKernelMultiDevice, (list, count, flags));
}

/* The helper asks streams and records events: not on one that has ended or begins to record a graph. */
#define DESTROY(name) \
    WRAP(name, (CUstream stream)) { \
        gate_hold(); \
        bool now = flight_forget_stream(stream); \
        gate_let_go(); \
        return capture_ended(now ? CALL(name, (stream)) : CUDA_SUCCESS, stream, NULL); \
    }
DESTROY(cuStreamDestroy)
DESTROY(cuStreamDestroy_v2)

#define RECORD(name, params, args) RECORD_AND(name, rc, params, args)
#define RECORD_AND(name, result, params, args) \
    WRAP(name, params) { \
        LOCKED(gate); \
        flight_await_helper(NULL, stream); \
        CUresult rc = CALL(name, args); \
        return result; \
    }
#define RECORD_ANEW(name, at, params, args) RECORD_AND(name, capture_begun(rc, at), params, args)
RECORD_ANEW(cuStreamBeginCapture, stream, (CUstream stream), (stream))
RECORD_ANEW(cuStreamBeginCapture_ptsz, PER_THREAD(stream), (CUstream stream), (stream))
RECORD_ANEW(cuStreamBeginCapture_v2, stream, (CUstream stream, int mode), (stream, mode))
RECORD_ANEW(cuStreamBeginCapture_v2_ptsz, PER_THREAD(stream), (CUstream stream, int mode), (stream, mode))
#define RECORD_TO_GRAPH(name) \
    RECORD(name, \
           (CUstream stream, CUgraph graph, const CUgraphNode *after, const void *edges, size_t count, int mode), \
           (stream, graph, after, edges, count, mode))
RECORD_TO_GRAPH(cuStreamBeginCaptureToGraph)
RECORD_TO_GRAPH(cuStreamBeginCaptureToGraph_ptsz)
#define RECORD_AGAIN(name) \
    RECORD(name, (CUstream stream, int mode, CUgraph graph, void *differs, void *data), \
           (stream, mode, graph, differs, data))
RECORD_AGAIN(cuStreamBeginRecaptureToGraph)
RECORD_AGAIN(cuStreamBeginRecaptureToGraph_ptsz)

/* What is recorded for a graphics interface is launched by that, past the gate. */
#define RECORD_ELSEWHERE(name) \
    WRAP(name, (CUstream stream, void *params)) { \
        return fgpu_gated ? CUDA_NOT_SUPPORTED : CALL(name, (stream, params)); \
    }
RECORD_ELSEWHERE(cuStreamBeginCaptureToCig)
RECORD_ELSEWHERE(cuStreamBeginCaptureToCig_ptsz)
