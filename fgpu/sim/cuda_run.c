/* The simulated driver's work: streams, capture, launches, graphs, events. A kernel takes as long as its first parameter
 * says (64-bit nanoseconds), a millisecond without one. */
#include "cuda.h"

enum { LAUNCH_NS = 4000, QUEUE = 1024, NO_TIMING = 2, ILLEGAL_STATE = 401, LOSSY_QUERY = 402, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURED_EVENT = 907 };

static struct stream legacy_stream;
static __thread struct stream thread_stream;
static __thread int capture_mode;

/* Streams, capture, graphs. */
struct stream *stream_of(CUstream s, bool per_thread)
{
    if ((uintptr_t)s == 2 || (!s && per_thread))
        return &thread_stream;
    return (uintptr_t)s <= 1 ? &legacy_stream : s;
}

/* Streams work where they were made, whatever is current; the default ones go with the current context. */
static struct context *context_of_stream(const struct stream *stream) { return stream->context ? stream->context : current; }
int device_of(const struct stream *stream) { return context_of_stream(stream)->device; }

static void end_capture(const struct graph *graph);
API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    NEED_CONTEXT;
    if (flags > 1)
        return CUDA_INVALID_VALUE;
    struct stream *stream = *out = zeroed(sizeof *stream);
    stream->context = current;
    stream->flags = flags;
    stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    return CUDA_SUCCESS;
}
API CUresult cuStreamCreate(CUstream *out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }
API CUresult cuStreamGetPriority(CUstream s, int *out) { *out = stream_of(s, false)->priority; return CUDA_SUCCESS; }
API CUresult cuStreamGetFlags(CUstream s, unsigned *out) { *out = stream_of(s, false)->flags; return CUDA_SUCCESS; }
API CUresult cuStreamGetDevice(CUstream s, CUdevice *out) { NEED_CONTEXT; *out = device_of(stream_of(s, false)); return CUDA_SUCCESS; }
API CUresult cuStreamGetId(CUstream s, unsigned long long *out) { NEED_CONTEXT; *out = (uintptr_t)stream_of(s, false); return CUDA_SUCCESS; }
API CUresult cuStreamGetCtx(CUstream s, CUcontext *out)
{
    NEED_CONTEXT;
    *out = stream_of(s, false)->context ? stream_of(s, false)->context : current;
    return CUDA_SUCCESS;
}
API CUresult cuStreamDestroy_v2(CUstream s)
{
    if ((uintptr_t)s <= 2)
        return BAD_HANDLE;
    struct stream *stream = s;
    if (stream->capture)
        end_capture(stream->capture);
    pthread_mutex_lock(&stream->lock);
    free(stream->queue);
    stream->queue = NULL;
    stream->ended = true; /* and kept: other threads may be at a launch on it */
    pthread_mutex_unlock(&stream->lock);
    return CUDA_SUCCESS;
}
API CUresult cuStreamDestroy(CUstream s) { return cuStreamDestroy_v2(s); }
API CUresult cuStreamQuery(CUstream s)
{
    need_driver();
    const struct stream *stream = stream_of(s, false);
    return sim_is_done(stream->last, NULL) && (!stream->duty || stream->duty->done) ? CUDA_SUCCESS : CUDA_NOT_READY;
}

API CUresult cuStreamSynchronize(CUstream s)
{
    NEED_CONTEXT;
    struct stream *stream = stream_of(s, false);
    if (stream->capture) { /* what is recorded does not run: nothing can be waited for */
        stream->capture->invalid = true;
        return CAPTURE_UNSUPPORTED;
    }
    sim_wait_for(stream->last);
    await_duty(stream->duty);
    pools_synchronised();
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void);
API CUresult cuCtxSynchronize(void)
{
    NEED_CONTEXT;
    sim_wait_for_all(visible[current->device]);
    await_all_duties();
    pools_synchronised();
    return CUDA_SUCCESS;
}

API CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    int old = capture_mode;
    capture_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

/* All streams that record into a graph, for the end of it. */
static struct stream *capturing;
static void join_capture(struct stream *stream, struct graph *graph)
{
    pthread_mutex_lock(&big);
    stream->capture = graph;
    stream->next = capturing;
    capturing = stream;
    pthread_mutex_unlock(&big);
}
static void end_capture(const struct graph *graph)
{
    pthread_mutex_lock(&big);
    for (struct stream **at = &capturing; *at;)
        if ((*at)->capture == graph) {
            (*at)->capture = NULL;
            *at = (*at)->next;
        } else {
            at = &(*at)->next;
        }
    pthread_mutex_unlock(&big);
}

static bool is_live(const struct graph *graph)
{
    pthread_mutex_lock(&big);
    const struct stream *at = capturing;
    while (at && at->capture != graph)
        at = at->next;
    pthread_mutex_unlock(&big);
    return at != NULL;
}
static int capture_status(const struct graph *graph) { return graph ? 1 + graph->invalid : 0; } /* none, active, invalidated */

API CUresult cuStreamBeginCapture_v2(CUstream s, int mode)
{
    NEED_CONTEXT;
    if (mode < 0 || mode > CAPTURE_MODE_RELAXED)
        return CUDA_INVALID_VALUE;
    if (stream_of(s, false)->capture)
        return ILLEGAL_STATE;
    struct graph *graph = zeroed(sizeof *graph);
    graph->device = device_of(stream_of(s, false));
    join_capture(stream_of(s, false), graph);
    return CUDA_SUCCESS;
}
API CUresult cuStreamBeginCapture(CUstream s) { return cuStreamBeginCapture_v2(s, 0); }

API CUresult cuStreamEndCapture(CUstream s, CUgraph *out)
{
    struct stream *stream = stream_of(s, false);
    struct graph *graph = *out = stream->capture;
    if (!graph)
        return ILLEGAL_STATE;
    end_capture(graph);
    if (!graph->invalid)
        return CUDA_SUCCESS;
    *out = NULL;
    destroy_graph(graph);
    return CAPTURE_INVALIDATED;
}

API CUresult cuStreamIsCapturing(CUstream s, int *status)
{
    *status = capture_status(stream_of(s, false)->capture);
    return CUDA_SUCCESS;
}

/* Work of another stream is waited for: it begins no earlier, or becomes a part of what is recorded there. */
API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    struct event *event = e;
    if (!event || flags > 1)
        return event ? CUDA_INVALID_VALUE : BAD_HANDLE;
    struct stream *stream = stream_of(s, false);
    if (event->capture && !is_live(event->capture))
        return CAPTURED_EVENT;
    if (event->capture && !stream->capture)
        join_capture(stream, event->capture);
    if (event->duty)
        stream->duty = event->duty;
    if (event->recorded && !event->capture && event->at > stream->ready)
        stream->ready = event->at;
    if (event->ticket.context && (event->ticket.context != stream->last.context || event->ticket.seq > stream->last.seq))
        stream->last = event->ticket; /* a GPU runs what it was given in order */
    return CUDA_SUCCESS;
}

/* With data of edges the capture is one that version 2 cannot describe; of type 255, one that version 3 cannot either. */
API CUresult cuStreamUpdateCaptureDependencies_v2(CUstream s, const CUgraphNode *after, const void *edges, size_t n, unsigned flags)
{
    (void)after, (void)flags;
    struct graph *graph = stream_of(s, false)->capture;
    if (!graph)
        return CUDA_INVALID_VALUE;
    graph->lossy = n && edges ? ((const unsigned char *)edges)[2] : 0;
    return CUDA_SUCCESS;
}

API CUresult cuStreamBeginCaptureToGraph(CUstream s, CUgraph graph, const CUgraphNode *after, const void *edges, size_t n, int mode)
{
    NEED_CONTEXT;
    (void)after, (void)edges, (void)n, (void)mode;
    join_capture(stream_of(s, false), graph);
    return CUDA_SUCCESS;
}
API CUresult cuStreamBeginRecaptureToGraph(CUstream s, int mode, CUgraph graph, void *differs, void *data)
{
    (void)differs, (void)data;
    return cuStreamBeginCaptureToGraph(s, graph, NULL, NULL, 0, mode);
}
API CUresult cuStreamBeginCaptureToCig(CUstream s, void *params) { (void)s, (void)params; return CUDA_SUCCESS; }

/* All but the status may be NULL. What is recorded next comes after the last node of the graph. */
static CUresult capture_info(CUstream s, int least_lossy, int *status, uint64_t *id, CUgraph *graph, const void **deps, size_t *n)
{
    const struct graph *capture = stream_of(s, false)->capture;
    if (capture && capture->lossy >= least_lossy)
        return LOSSY_QUERY;
    *status = capture_status(capture);
    if (capture && capture->invalid)
        return CUDA_SUCCESS;
    if (id)
        *id = (uintptr_t)capture;
    if (graph)
        *graph = (CUgraph)(uintptr_t)capture;
    if (n)
        *n = capture && capture->count;
    if (deps)
        *deps = capture && capture->count ? capture->nodes + capture->count - 1 : NULL;
    return CUDA_SUCCESS;
}
API CUresult cuStreamGetCaptureInfo_v3(CUstream s, int *status, uint64_t *id, CUgraph *graph, const void **deps, const void **edges, size_t *n)
{
    if (edges)
        *edges = NULL;
    return capture_info(s, 255, status, id, graph, deps, n);
}
API CUresult cuStreamGetCaptureInfo_v2(CUstream s, int *status, uint64_t *id, CUgraph *graph, const void **deps, size_t *n)
{
    return capture_info(s, 1, status, id, graph, deps, n);
}

/* Lock the stream, with room for one command more: a full queue makes the program wait, whatever the command. */
static void lock_with_room(struct stream *stream)
{
    context_of_stream(stream)->sending++;
    for (;;) {
        pthread_mutex_lock(&stream->lock);
        if (!stream->queue)
            stream->queue = zeroed(QUEUE * sizeof *stream->queue);
        struct command oldest = stream->queue[stream->commands % QUEUE];
        if (sim_is_done(oldest.ticket, NULL) && sim_now() >= oldest.at)
            return;
        pthread_mutex_unlock(&stream->lock);
        sim_wait_for(oldest.ticket);
        sim_sleep_until(oldest.at);
    }
}

static void unlock_after_command(struct stream *stream)
{
    stream->queue[stream->commands++ % QUEUE] = (struct command){stream->last, stream->ready};
    pthread_mutex_unlock(&stream->lock);
    context_of_stream(stream)->sending--;
}

/* So long a thread is at each of its launches before the driver has it. */
static __thread uint64_t delay_ns;
void fgpuSimDelayLaunches(uint64_t ns);
API void fgpuSimDelayLaunches(uint64_t ns) { delay_ns = ns; }

CUresult run(struct stream *stream, uint64_t ns)
{
    NEED_CONTEXT;
    if (stream->capture) {
        stream->capture->ns += ns;
        return CUDA_SUCCESS;
    }
    int gpu = visible[device_of(stream)];
    sim_spend(LAUNCH_NS + delay_ns);
    sim_await_room(gpu);
    lock_with_room(stream);
    uint64_t now = sim_now();
    stream->ready = stream->ready > now ? stream->ready : now;
    struct sim_ticket ticket = sim_launch(gpu, stream->ready, ns);
    stream->last = ticket.context ? ticket : stream->last;
    unlock_after_command(stream);
    return CUDA_SUCCESS;
}

/* Let a stream wait for something that is not on the GPU, as for another GPU or a host's flag. */
void fgpuSimHold(CUstream s, uint64_t until);
API void fgpuSimHold(CUstream s, uint64_t until)
{
    struct stream *stream = stream_of(s, false);
    stream->ready = stream->ready > until ? stream->ready : until;
}

/* A kernel of the stream launches more work itself: it is not done before that is. */
void fgpuSimLaunchOnDevice(CUstream s, uint64_t ns);
API void fgpuSimLaunchOnDevice(CUstream s, uint64_t ns) { sim_grow(stream_of(s, false)->last, ns); }

/* Do it now, or record it. */
CUresult submit(struct stream *stream, const struct act *act)
{
    NEED_CONTEXT;
    if (stream->capture && stream->capture->invalid)
        return CAPTURE_INVALIDATED;
    if (stream->capture)
        return add_node(stream->capture, act, stream->capture->nodes + stream->capture->count - !!stream->capture->count, !!stream->capture->count) ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
    return act->type == NODE_HOST ? call_on_host(stream, &act->host) : perform(act);
}

static CUresult launch(CUfunction f, CUstream s, bool per_thread, void **params)
{
    struct stream *stream = stream_of(s, per_thread);
    NEED_CONTEXT;
    if (stream->capture) {
        struct act act = {.type = NODE_KERNEL, .kernel = {.function = f, .params = params}};
        return submit(stream, &act);
    }
    return run(stream, kernel_ns(f, params));
}

/* A grid of at least a block, of at least a thread and at most as many as the device says. */
static bool can_launch(const unsigned grid[3], const unsigned block[3])
{
    uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2], threads = (uint64_t)block[0] * block[1] * block[2];
    return blocks && threads && threads <= 1024;
}

#define SHAPE unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
#define CAN_LAUNCH can_launch((const unsigned[]){gx, gy, gz}, (const unsigned[]){bx, by, bz})
API CUresult cuLaunchKernel(CUfunction f, SHAPE, CUstream s, void **params, void **extra) { (void)extra, (void)shared; return CAN_LAUNCH ? launch(f, s, false, params) : CUDA_INVALID_VALUE; }
API CUresult cuLaunchKernel_ptsz(CUfunction f, SHAPE, CUstream s, void **params, void **extra) { (void)extra, (void)shared; return CAN_LAUNCH ? launch(f, s, true, params) : CUDA_INVALID_VALUE; }
API CUresult cuLaunchCooperativeKernel(CUfunction f, SHAPE, CUstream s, void **params) { (void)shared; return CAN_LAUNCH ? launch(f, s, false, params) : CUDA_INVALID_VALUE; }
API CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, SHAPE, CUstream s, void **params) { (void)shared; return CAN_LAUNCH ? launch(f, s, true, params) : CUDA_INVALID_VALUE; }
API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) { (void)extra; return can_launch(c->grid, c->block) ? launch(f, c->stream, false, params) : CUDA_INVALID_VALUE; }
API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) { (void)extra; return can_launch(c->grid, c->block) ? launch(f, c->stream, true, params) : CUDA_INVALID_VALUE; }
API CUresult cuLaunchCooperativeKernelMultiDevice(CUlaunchParams *list, unsigned n, unsigned flags) { (void)flags; return n ? launch(list->f, list->stream, false, list->params) : CUDA_INVALID_VALUE; }
static CUresult launch_kept(CUfunction f, CUstream s)
{
    uint64_t ns = kept_kernel_ns(f);
    return ns ? run(stream_of(s, false), ns) : CUDA_INVALID_VALUE;
}
API CUresult cuLaunch(CUfunction f) { return launch_kept(f, NULL); }
API CUresult cuLaunchGrid(CUfunction f, int w, int h) { return w > 0 && h > 0 ? launch_kept(f, NULL) : CUDA_INVALID_VALUE; }
API CUresult cuLaunchGridAsync(CUfunction f, int w, int h, CUstream s) { return w > 0 && h > 0 ? launch_kept(f, s) : CUDA_INVALID_VALUE; }

/* Events. */
API CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    NEED_CONTEXT;
    if (flags & ~7u || ((flags & 4) && !(flags & NO_TIMING)))
        return CUDA_INVALID_VALUE;
    struct event *event = *out = zeroed(sizeof *event);
    event->device = current->device;
    event->flags = flags;
    return CUDA_SUCCESS;
}
API CUresult cuEventDestroy_v2(CUevent e)
{
    free(e);
    return e ? CUDA_SUCCESS : BAD_HANDLE;
}
API CUresult cuEventDestroy(CUevent e) { return cuEventDestroy_v2(e); }

/* How many this process has recorded, for tests of what the hook adds to a launch. */
static _Atomic uint64_t recorded;
uint64_t fgpuSimRecorded(void);
API uint64_t fgpuSimRecorded(void) { return recorded; }

API CUresult cuEventRecord(CUevent e, CUstream s)
{
    recorded++;
    struct stream *stream = stream_of(s, false);
    struct event *event = e;
    if (stream->ended)
        abort(); /* undefined */
    if (!event || (stream->context && event->device != stream->context->device))
        return BAD_HANDLE; /* an event is recorded on its own GPU only */
    event->recorded = true;
    event->capture = stream->capture;
    if (stream->capture) {
        if (getenv("FGPU_SIM_PURE_CAPTURES")) { /* stricter than the real one: nobody but the hook could have done it */
            end_capture(stream->capture);
            return BAD_HANDLE;
        }
        return CUDA_SUCCESS;
    }
    lock_with_room(stream);
    event->duty = stream->duty && !stream->duty->done ? stream->duty : NULL;
    event->ticket = stream->last;
    event->at = sim_now(); /* on a stream with nothing to do, or later where it waits for something */
    event->at = stream->ready > event->at ? stream->ready : event->at;
    if (sim_is_done(event->ticket, NULL))
        event->ticket.context = 0;
    unlock_after_command(stream);
    return CUDA_SUCCESS;
}

/* Whether the event has happened, and when. */
static bool happened(struct event *event)
{
    uint64_t end = 0;
    if (!sim_is_done(event->ticket, &end))
        return false;
    event->at = end > event->at ? end : event->at; /* its stream may wait for something after its last kernel */
    event->ticket.context = 0;
    return sim_now() >= event->at && (!event->duty || event->duty->done);
}

API CUresult cuEventQuery(CUevent e)
{
    need_driver();
    if (!e)
        return BAD_HANDLE;
    if (((struct event *)e)->capture)
        return CAPTURED_EVENT;
    return happened(e) ? CUDA_SUCCESS : CUDA_NOT_READY; /* costs no time: it may be asked with a lock held */
}

API CUresult cuEventSynchronize(CUevent e)
{
    if (!e)
        return BAD_HANDLE;
    if (((struct event *)e)->capture)
        return CAPTURED_EVENT;
    sim_wait_for(((struct event *)e)->ticket);
    await_duty(((struct event *)e)->duty);
    if (!happened(e))
        sim_sleep_until(((struct event *)e)->at);
    return CUDA_SUCCESS;
}

API CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b)
{
    need_driver();
    const struct event *from = a, *to = b;
    if (!from || !to || !from->recorded || !to->recorded || (from->flags | to->flags) & NO_TIMING)
        return BAD_HANDLE;
    if (!happened(a) || !happened(b))
        return CUDA_NOT_READY;
    *ms = (float)((double)((struct event *)b)->at - (double)((struct event *)a)->at) / 1e6f;
    return CUDA_SUCCESS;
}
API CUresult cuEventElapsedTime_v2(float *ms, CUevent a, CUevent b) { return cuEventElapsedTime(ms, a, b); }
API CUresult cuEventRecordWithFlags(CUevent e, CUstream s, unsigned flags) { return flags > 1 ? CUDA_INVALID_VALUE : cuEventRecord(e, s); }

API CUresult cuProfilerStart(void) { NEED_CONTEXT; return CUDA_SUCCESS; } /* no profiler is attached, which is no error */
API CUresult cuProfilerStop(void) { NEED_CONTEXT; return CUDA_SUCCESS; }
