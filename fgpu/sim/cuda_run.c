/* The simulated driver's work: streams, capture, launches, graphs, events. A kernel takes as long as its first parameter
 * says (64-bit nanoseconds), a millisecond without one. */
#include "cuda.h"

enum { LAUNCH_NS = 4000, DEFAULT_KERNEL_NS = 1000000, LOSSY_QUERY = 911 };

static uint64_t graph_idle[SIM_GPUS];
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
int device_of(const struct stream *stream) { return (stream->context ? stream->context : current)->device; }

CUresult cuStreamCreate(CUstream *, unsigned), cuStreamDestroy_v2(CUstream), cuStreamSynchronize(CUstream);
CUresult cuStreamBeginCapture_v2(CUstream, int), cuStreamEndCapture(CUstream, CUgraph *), cuStreamQuery(CUstream);
API CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    NEED_CONTEXT;
    (void)flags;
    struct stream *stream = *out = zeroed(sizeof *stream);
    stream->context = current;
    return CUDA_SUCCESS;
}
API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) { (void)priority; return cuStreamCreate(out, flags); }
API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) { (void)s, (void)flags; return e ? CUDA_SUCCESS : BAD_HANDLE; }
API CUresult cuModuleLoadDataEx(void **out, const void *image, unsigned n, int *options, void **values) { (void)n, (void)options, (void)values; NEED_CONTEXT; *out = (void *)(uintptr_t)image; return CUDA_SUCCESS; }
API CUresult cuModuleUnload(void *module) { NEED_CONTEXT; return module ? CUDA_SUCCESS : BAD_HANDLE; }
API CUresult cuStreamGetCtx(CUstream s, CUcontext *out)
{
    NEED_CONTEXT;
    *out = stream_of(s, false)->context ? stream_of(s, false)->context : current;
    return CUDA_SUCCESS;
}
API CUresult cuStreamDestroy_v2(CUstream s) { free(s); return CUDA_SUCCESS; }
CUresult cuStreamDestroy(CUstream);
API CUresult cuStreamDestroy(CUstream s) { return cuStreamDestroy_v2(s); }
API CUresult cuStreamQuery(CUstream s) { return sim_is_done(stream_of(s, false)->last, NULL) ? CUDA_SUCCESS : CUDA_NOT_READY; }

API CUresult cuStreamSynchronize(CUstream s)
{
    NEED_CONTEXT;
    sim_wait_for(stream_of(s, false)->last);
    pools_synchronised();
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void);
API CUresult cuCtxSynchronize(void)
{
    NEED_CONTEXT;
    sim_wait_for_all(visible[current->device]);
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

API CUresult cuStreamBeginCapture_v2(CUstream s, int mode)
{
    NEED_CONTEXT;
    (void)mode;
    struct graph *graph = stream_of(s, false)->capture = zeroed(sizeof *graph);
    graph->device = device_of(stream_of(s, false));
    return CUDA_SUCCESS;
}

API CUresult cuStreamEndCapture(CUstream s, CUgraph *out)
{
    struct stream *stream = stream_of(s, false);
    *out = stream->capture;
    stream->capture = NULL;
    return *out ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

API CUresult cuStreamIsCapturing(CUstream s, int *status)
{
    *status = stream_of(s, false)->capture != NULL;
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
    stream_of(s, false)->capture = graph;
    return CUDA_SUCCESS;
}
API CUresult cuStreamBeginRecaptureToGraph(CUstream s, int mode, CUgraph graph, void *differs, void *data)
{
    (void)differs, (void)data;
    return cuStreamBeginCaptureToGraph(s, graph, NULL, NULL, 0, mode);
}
API CUresult cuStreamBeginCaptureToCig(CUstream s, void *params) { (void)s, (void)params; return CUDA_SUCCESS; }

API CUresult cuStreamGetCaptureInfo_v3(CUstream s, int *status, uint64_t *id, CUgraph *graph, const void **deps, const void **edges, size_t *n)
{
    (void)id, (void)deps, (void)edges, (void)n;
    struct graph *capture = stream_of(s, false)->capture;
    if (capture && capture->lossy == 255)
        return LOSSY_QUERY;
    *status = capture != NULL;
    *graph = capture;
    return CUDA_SUCCESS;
}

API CUresult cuStreamGetCaptureInfo_v2(CUstream s, int *status, uint64_t *id, CUgraph *graph, const void **deps, size_t *n)
{
    (void)id, (void)deps, (void)n;
    if (stream_of(s, false)->capture && ((struct graph *)stream_of(s, false)->capture)->lossy)
        return LOSSY_QUERY;
    *status = stream_of(s, false)->capture != NULL;
    *graph = stream_of(s, false)->capture;
    return CUDA_SUCCESS;
}

static CUresult run(struct stream *stream, uint64_t ns)
{
    NEED_CONTEXT;
    if (stream->capture) {
        stream->capture->ns += ns;
        return CUDA_SUCCESS;
    }
    sim_spend(LAUNCH_NS);
    uint64_t now = sim_now();
    stream->ready = stream->ready > now ? stream->ready : now;
    struct sim_ticket ticket = sim_launch(visible[device_of(stream)], stream->ready, ns);
    stream->last = ticket.context ? ticket : stream->last;
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

static uint64_t duration(void **params)
{
    return params && params[0] ? *(uint64_t *)params[0] : DEFAULT_KERNEL_NS;
}

#define SHAPE unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
#define UNUSED (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared
API CUresult cuLaunchKernel(CUfunction f, SHAPE, CUstream s, void **params, void **extra) { UNUSED, (void)extra; return run(stream_of(s, false), duration(params)); }
API CUresult cuLaunchKernel_ptsz(CUfunction f, SHAPE, CUstream s, void **params, void **extra) { UNUSED, (void)extra; return run(stream_of(s, true), duration(params)); }
API CUresult cuLaunchCooperativeKernel(CUfunction f, SHAPE, CUstream s, void **params) { UNUSED; return run(stream_of(s, false), duration(params)); }
API CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, SHAPE, CUstream s, void **params) { UNUSED; return run(stream_of(s, true), duration(params)); }
API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) { (void)f, (void)extra; return run(stream_of(c->stream, false), duration(params)); }
API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) { (void)f, (void)extra; return run(stream_of(c->stream, true), duration(params)); }
API CUresult cuLaunchCooperativeKernelMultiDevice(CUlaunchParams *list, unsigned n, unsigned flags) { (void)flags; return n ? run(stream_of(list->stream, false), duration(list->params)) : CUDA_INVALID_VALUE; }
API CUresult cuLaunch(CUfunction f) { (void)f; return run(&legacy_stream, DEFAULT_KERNEL_NS); }
API CUresult cuLaunchGrid(CUfunction f, int w, int h) { (void)f, (void)w, (void)h; return run(&legacy_stream, DEFAULT_KERNEL_NS); }
API CUresult cuLaunchGridAsync(CUfunction f, int w, int h, CUstream s) { (void)f, (void)w, (void)h; return run(stream_of(s, false), DEFAULT_KERNEL_NS); }

CUresult cuModuleLoadData(void **, const void *), cuModuleGetFunction(CUfunction *, void *, const char *);
API CUresult cuModuleLoadData(void **out, const void *image) { NEED_CONTEXT; *out = (void *)(uintptr_t)image; return CUDA_SUCCESS; }
API CUresult cuModuleGetFunction(CUfunction *out, void *module, const char *name) { (void)module; *out = (CUfunction)(uintptr_t)name; return CUDA_SUCCESS; }

CUresult cuGraphCreate(CUgraph *, unsigned);
API CUresult cuGraphCreate(CUgraph *out, unsigned flags)
{
    NEED_CONTEXT;
    (void)flags;
    struct graph *graph = *out = zeroed(sizeof *graph);
    graph->device = current->device;
    return CUDA_SUCCESS;
}

static CUresult add_memory(struct graph *graph, CUallocNode *params, CUgraphNode *out)
{
    if (!params->bytes)
        return CUDA_INVALID_VALUE;
    graph->bytes += params->bytes;
    params->ptr = take_addresses(params->bytes);
    *out = graph;
    return CUDA_SUCCESS;
}

static CUresult add_child(struct graph *graph, CUgraph child, int ownership, CUgraphNode *out)
{
    graph->bytes += ((struct graph *)child)->bytes;
    graph->ns += ((struct graph *)child)->ns;
    *out = graph;
    if (ownership == CHILD_MOVED)
        free(child);
    return CUDA_SUCCESS;
}

API CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph g, const CUgraphNode *after, size_t n, CUallocNode *params)
{
    (void)after, (void)n;
    return add_memory(g, params, out);
}

API CUresult cuGraphAddNode(CUgraphNode *out, CUgraph g, const CUgraphNode *after, size_t n, CUnodeParams *params)
{
    (void)after, (void)n;
    if (params->type == NODE_CHILD_GRAPH)
        return add_child(g, params->child.graph, params->child.ownership, out);
    return params->type == NODE_MEM_ALLOC ? add_memory(g, &params->alloc, out) : (*out = g, CUDA_SUCCESS);
}

API CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph g, const CUgraphNode *after, size_t n, CUgraph child)
{
    (void)after, (void)n;
    return add_child(g, child, 0, out);
}

API CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *after, const void *edges, size_t n, CUnodeParams *params)
{
    (void)edges;
    return cuGraphAddNode(out, g, after, n, params);
}

API CUresult cuGraphAddNode_v3(CUgraphNode *out, CUgraph g, const CUgraphNode *after, const void *edges, size_t n, CUnodeParams *params)
{
    return cuGraphAddNode_v2(out, g, after, edges, n, params);
}

API CUresult cuGraphClone(CUgraph *out, CUgraph g)
{
    *out = zeroed(sizeof(struct graph));
    memcpy(*out, g, sizeof(struct graph));
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *out, CUgraph g)
{
    struct graph *copy = *out = zeroed(sizeof *copy);
    *copy = *(struct graph *)g;
    copy->launched = 0;
    return CUDA_SUCCESS;
}

API CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph g, CUgraphNode *bad, char *log, size_t room) { (void)bad, (void)log, (void)room; return instantiate(out, g); }
API CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph g, CUgraphNode *bad, char *log, size_t room) { (void)bad, (void)log, (void)room; return instantiate(out, g); }
API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags) { (void)flags; return instantiate(out, g); }
API CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph g, void *params) { (void)params; return instantiate(out, g); }
API CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph g, void *params) { (void)params; return instantiate(out, g); }
API CUresult cuGraphDestroy(CUgraph g) { free(g); return CUDA_SUCCESS; }

API CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    struct graph *graph = exec;
    graph_idle[graph->device] += graph->launched ? graph->bytes : 0;
    free(graph);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGraphMemTrim(CUdevice d)
{
    NEED_DEVICE(d);
    sim_release(visible[d], graph_idle[d]);
    graph_idle[d] = 0;
    return CUDA_SUCCESS;
}

static CUresult launch_graph(CUgraphExec exec, struct stream *stream)
{
    struct graph *graph = exec;
    if (!graph->launched && graph->bytes && !sim_reserve(visible[graph->device], graph->bytes))
        return CUDA_OUT_OF_MEMORY;
    graph->launched = 1;
    return run(stream, graph->ns);
}

API CUresult cuGraphLaunch(CUgraphExec exec, CUstream s) { return launch_graph(exec, stream_of(s, false)); }
API CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream s) { return launch_graph(exec, stream_of(s, true)); }

/* Events. */
API CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    NEED_CONTEXT;
    (void)flags;
    struct event *event = *out = zeroed(sizeof *event);
    event->device = current->device;
    return CUDA_SUCCESS;
}
API CUresult cuEventDestroy_v2(CUevent e) { free(e); return CUDA_SUCCESS; }

/* How many this process has recorded, for tests of what the hook adds to a launch. */
static _Atomic uint64_t recorded;
uint64_t fgpuSimRecorded(void);
API uint64_t fgpuSimRecorded(void) { return recorded; }

API CUresult cuEventRecord(CUevent e, CUstream s)
{
    recorded++;
    struct stream *stream = stream_of(s, false);
    struct event *event = e;
    if (!event || (stream->context && event->device != stream->context->device))
        return BAD_HANDLE; /* an event is recorded on its own GPU only */
    if (stream->capture) { /* stricter than the real one, which would record it: nobody here has reason to */
        free(stream->capture);
        stream->capture = NULL;
        return BAD_HANDLE;
    }
    event->ticket = stream->last;
    event->at = sim_now(); /* on a stream with nothing to do, or later where it waits for something */
    event->at = stream->ready > event->at ? stream->ready : event->at;
    if (sim_is_done(event->ticket, NULL))
        event->ticket.context = 0;
    return CUDA_SUCCESS;
}

/* Whether the event has happened, and when. */
static bool happened(struct event *event)
{
    if (!sim_is_done(event->ticket, &event->at))
        return false;
    event->ticket.context = 0;
    return sim_now() >= event->at;
}

API CUresult cuEventQuery(CUevent e)
{
    if (!e)
        return BAD_HANDLE;
    return happened(e) ? CUDA_SUCCESS : CUDA_NOT_READY; /* costs no time: it may be asked with a lock held */
}

API CUresult cuEventSynchronize(CUevent e)
{
    if (!e)
        return BAD_HANDLE;
    sim_wait_for(((struct event *)e)->ticket);
    if (!happened(e))
        sim_sleep_until(((struct event *)e)->at);
    return CUDA_SUCCESS;
}

API CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b)
{
    if (!a || !b)
        return BAD_HANDLE;
    if (!happened(a) || !happened(b))
        return CUDA_NOT_READY;
    *ms = (float)((double)((struct event *)b)->at - (double)((struct event *)a)->at) / 1e6f;
    return CUDA_SUCCESS;
}

