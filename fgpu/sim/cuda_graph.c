/* The simulated driver's graphs: nodes with what comes before each, done in the order in which they were added. */
#include "cuda.h"

static uint64_t graph_idle[SIM_GPUS];

struct node *add_node(struct graph *graph, const struct act *act, struct node *const *after, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!after || !after[i] || after[i]->graph != graph)
            return NULL;
    struct node *node = zeroed(sizeof *node);
    node->act = *act;
    node->graph = graph;
    node->count = count;
    node->after = zeroed((count + 1) * sizeof *node->after);
    for (size_t i = 0; i < count; i++)
        node->after[i] = after[i];
    graph->nodes = grown(graph->nodes, (graph->count + 1) * sizeof *graph->nodes);
    graph->nodes[graph->count++] = node;
    if (act->type == NODE_KERNEL) { /* parameters are read when they are given: then they are the program's again */
        graph->ns += kernel_ns(act->kernel.function, act->kernel.params);
        node->act.kernel.params = NULL;
    }
    if (act->type == NODE_MEM_ALLOC)
        graph->bytes += act->alloc.bytes;
    return node;
}

static CUresult added(CUgraphNode *out, CUgraph g, const struct act *act, const CUgraphNode *after, size_t n)
{
    struct node *node = g && out ? add_node(g, act, (struct node *const *)(uintptr_t)after, n) : NULL;
    if (node)
        *out = node;
    return node ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

API CUresult cuGraphCreate(CUgraph *out, unsigned flags)
{
    NEED_INIT;
    if (flags || !out)
        return CUDA_INVALID_VALUE;
    struct graph *graph = *out = zeroed(sizeof *graph);
    graph->device = current ? current->device : 0;
    return CUDA_SUCCESS;
}

static CUresult add_memory(CUgraph g, CUallocNode *params, CUgraphNode *out, const CUgraphNode *after, size_t n)
{
    if (!params || !params->bytes)
        return CUDA_INVALID_VALUE;
    params->ptr = take_addresses(params->bytes);
    struct act act = {.type = NODE_MEM_ALLOC, .alloc = *params};
    return added(out, g, &act, after, n);
}

static struct graph *copy_of(const struct graph *graph);
static CUresult add_child(CUgraph g, CUgraph c, int ownership, CUgraphNode *out, const CUgraphNode *after, size_t n)
{
    struct graph *graph = g, *child = c;
    struct act act = {.type = NODE_CHILD_GRAPH};
    CUresult rc = child ? added(out, g, &act, after, n) : CUDA_INVALID_VALUE;
    if (rc)
        return rc;
    graph->bytes += child->bytes;
    graph->ns += child->ns;
    ((struct node *)*out)->child = ownership == CHILD_MOVED ? child : copy_of(child);
    return CUDA_SUCCESS;
}

#define NODE CUgraphNode *out, CUgraph g, const CUgraphNode *after, size_t n
API CUresult cuGraphAddEmptyNode(NODE) { struct act act = {.type = NODE_EMPTY}; return added(out, g, &act, after, n); }
API CUresult cuGraphAddMemcpyNode(NODE, const struct copy *copy, CUcontext c) { (void)c; struct act act = {.type = NODE_COPY, .copy = *copy}; return added(out, g, &act, after, n); }
API CUresult cuGraphAddMemsetNode(NODE, const struct fill *fill, CUcontext c) { (void)c; struct act act = {.type = NODE_FILL, .fill = *fill}; return added(out, g, &act, after, n); }
API CUresult cuGraphAddHostNode(NODE, const struct host_call *call) { struct act act = {.type = NODE_HOST, .host = *call}; return added(out, g, &act, after, n); }
API CUresult cuGraphAddKernelNode_v2(NODE, const struct kernel_node *kernel) { struct act act = {.type = NODE_KERNEL, .kernel = *kernel}; return added(out, g, &act, after, n); }
API CUresult cuGraphAddKernelNode(NODE, const struct kernel_node *kernel)
{
    struct act act = {.type = NODE_KERNEL};
    memcpy(&act.kernel, kernel, offsetof(struct kernel_node, rest)); /* what came after it in version 2 is not there */
    return added(out, g, &act, after, n);
}
API CUresult cuGraphAddMemFreeNode(NODE, CUdeviceptr p) { struct act act = {.type = NODE_MEM_FREE, .free = p}; return added(out, g, &act, after, n); }
API CUresult cuGraphAddMemAllocNode(NODE, CUallocNode *params) { return add_memory(g, params, out, after, n); }
API CUresult cuGraphAddChildGraphNode(NODE, CUgraph child) { return add_child(g, child, 0, out, after, n); }

/* A node's parameters, of whatever kind, lie at the start of the union; those of a copy after 16 bytes of flags. */
static CUresult act_of(const CUnodeParams *params, struct act *act)
{
    const char *at = (const char *)&params->alloc;
    act->type = params->type;
    switch (params->type) {
    case NODE_KERNEL: memcpy(&act->kernel, at, sizeof act->kernel); break;
    case NODE_COPY: memcpy(&act->copy, at + 16, sizeof act->copy); break;
    case NODE_FILL: memcpy(&act->fill, at, sizeof act->fill); break;
    case NODE_HOST: memcpy(&act->host, at, sizeof act->host); break;
    case NODE_MEM_FREE: memcpy(&act->free, at, sizeof act->free); break;
    case NODE_EMPTY: break;
    default: return CUDA_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

API CUresult cuGraphAddNode(NODE, CUnodeParams *params)
{
    if (params->type == NODE_CHILD_GRAPH)
        return add_child(g, params->child.graph, params->child.ownership, out, after, n);
    if (params->type == NODE_MEM_ALLOC)
        return add_memory(g, &params->alloc, out, after, n);
    struct act act = {0};
    CUresult rc = act_of(params, &act);
    return rc ? rc : added(out, g, &act, after, n);
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

/* What is in a graph. A list that is not asked for gets its length. */
API CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *out, size_t *count)
{
    const struct graph *graph = g;
    for (size_t i = 0; out && i < *count; i++)
        out[i] = i < graph->count ? graph->nodes[i] : NULL;
    *count = out && *count < graph->count ? *count : graph->count;
    return CUDA_SUCCESS;
}
API CUresult cuGraphGetRootNodes(CUgraph g, CUgraphNode *out, size_t *count)
{
    const struct graph *graph = g;
    size_t found = 0;
    for (size_t i = 0; i < graph->count; i++)
        if (!graph->nodes[i]->count && found++ < *count && out)
            out[found - 1] = graph->nodes[i];
    *count = found;
    return CUDA_SUCCESS;
}
API CUresult cuGraphGetEdges(CUgraph g, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    const struct graph *graph = g;
    size_t found = 0;
    for (size_t i = 0; i < graph->count; i++)
        for (size_t j = 0; j < graph->nodes[i]->count; j++)
            if (found++ < *count && from && to)
                from[found - 1] = graph->nodes[i]->after[j], to[found - 1] = graph->nodes[i];
    *count = found;
    return CUDA_SUCCESS;
}
API CUresult cuGraphNodeGetDependencies(CUgraphNode n, CUgraphNode *out, size_t *count)
{
    const struct node *node = n;
    for (size_t i = 0; out && i < *count; i++)
        out[i] = i < node->count ? node->after[i] : NULL;
    *count = node->count;
    return CUDA_SUCCESS;
}
API CUresult cuGraphAddDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct node *node = to[i], *before = from[i];
        if (node->graph != g || before->graph != g || node == before)
            return CUDA_INVALID_VALUE;
        node->after = grown(node->after, (node->count + 1) * sizeof *node->after);
        node->after[node->count++] = before;
    }
    return CUDA_SUCCESS;
}

/* With the data of edges, of which there is none: what asks for them gets zeros. */
static void no_edges(void *edges, const size_t *count)
{
    if (edges)
        memset(edges, 0, *count * 8);
}
API CUresult cuGraphGetEdges_v2(CUgraph g, CUgraphNode *from, CUgraphNode *to, void *edges, size_t *count)
{
    no_edges(edges, count);
    return cuGraphGetEdges(g, from, to, count);
}
API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode n, CUgraphNode *out, void *edges, size_t *count)
{
    no_edges(edges, count);
    return cuGraphNodeGetDependencies(n, out, count);
}
API CUresult cuGraphAddDependencies_v2(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, const void *edges, size_t count)
{
    return edges ? CUDA_NOT_SUPPORTED : cuGraphAddDependencies(g, from, to, count);
}
API CUresult cuGraphNodeGetType(CUgraphNode n, int *out)
{
    *out = n ? ((struct node *)n)->act.type : 0;
    return n ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}
#define PARAMETERS(name, kind, layout, field) \
    API CUresult cuGraph##name##NodeGetParams(CUgraphNode n, layout *out) { struct node *node = n; *out = node->act.field; return node->act.type == kind ? CUDA_SUCCESS : CUDA_INVALID_VALUE; } \
    API CUresult cuGraph##name##NodeSetParams(CUgraphNode n, const layout *in) { struct node *node = n; node->act.field = *in; return node->act.type == kind ? CUDA_SUCCESS : CUDA_INVALID_VALUE; }
PARAMETERS(Memcpy, NODE_COPY, struct copy, copy)
PARAMETERS(Memset, NODE_FILL, struct fill, fill)
PARAMETERS(Host, NODE_HOST, struct host_call, host)

API CUresult cuGraphNodeSetParams(CUgraphNode n, CUnodeParams *params)
{
    struct node *node = n;
    struct act act = node ? node->act : (struct act){0};
    CUresult rc = node && params->type == act.type ? act_of(params, &act) : CUDA_INVALID_VALUE;
    if (!rc)
        node->act = act;
    return rc;
}

/* Of an executable's own copy of the node: at the same place as the node in its graph. */
API CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode n, CUnodeParams *params)
{
    const struct graph *copy = exec, *graph = n ? ((struct node *)n)->graph : NULL;
    for (size_t i = 0; copy && graph && i < graph->count && i < copy->count; i++)
        if (graph->nodes[i] == n)
            return cuGraphNodeSetParams(copy->nodes[i], params);
    return CUDA_INVALID_VALUE;
}

/* Nodes that a graph still has would hold up its memory's end: those cannot be taken out, as with the real one. */
API CUresult cuGraphDestroyNode(CUgraphNode n)
{
    struct node *node = n;
    struct graph *graph = node ? node->graph : NULL;
    if (!node || node->act.type == NODE_MEM_ALLOC || node->act.type == NODE_MEM_FREE)
        return node ? CUDA_NOT_SUPPORTED : CUDA_INVALID_VALUE;
    size_t kept = 0;
    for (size_t i = 0; i < graph->count; i++) {
        struct node *each = graph->nodes[i];
        size_t before = 0;
        for (size_t j = 0; j < each->count; j++)
            if (each->after[j] != node)
                each->after[before++] = each->after[j];
        each->count = before;
        if (each != node)
            graph->nodes[kept++] = each;
    }
    graph->count = kept;
    if (node->act.type == NODE_KERNEL)
        graph->ns -= kernel_ns(node->act.kernel.function, NULL) < graph->ns ? kernel_ns(node->act.kernel.function, NULL) : graph->ns;
    free(node->after);
    free(node);
    return CUDA_SUCCESS;
}

static struct graph *copy_of(const struct graph *graph)
{
    struct graph *copy = zeroed(sizeof *copy);
    *copy = *graph;
    copy->launched = 0;
    copy->count = 0;
    copy->nodes = NULL;
    copy->ns = copy->bytes = 0;
    for (size_t i = 0; i < graph->count; i++) {
        const struct node *node = graph->nodes[i];
        struct node *twin = add_node(copy, &node->act, NULL, 0);
        if (!twin)
            abort();
        twin->child = node->child;
        twin->after = grown(twin->after, (node->count + 1) * sizeof *twin->after);
        for (size_t j = 0; j < node->count; j++)
            for (size_t k = 0; k < graph->count; k++)
                if (graph->nodes[k] == node->after[j] && k < copy->count)
                    twin->after[twin->count++] = copy->nodes[k];
    }
    copy->ns = graph->ns;
    copy->bytes = graph->bytes;
    return copy;
}

void destroy_graph(struct graph *graph)
{
    for (size_t i = 0; i < graph->count; i++) {
        free(graph->nodes[i]->after);
        free(graph->nodes[i]);
    }
    free(graph->nodes);
    free(graph);
}

API CUresult cuGraphClone(CUgraph *out, CUgraph g) { *out = copy_of(g); return CUDA_SUCCESS; }
static CUresult instantiate(CUgraphExec *out, CUgraph g)
{
    *out = g ? copy_of(g) : NULL;
    return g ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}
API CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph g, CUgraphNode *bad, char *log, size_t room) { (void)bad, (void)log, (void)room; return instantiate(out, g); }
API CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph g, CUgraphNode *bad, char *log, size_t room) { (void)bad, (void)log, (void)room; return instantiate(out, g); }
API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags) { (void)flags; return instantiate(out, g); }
API CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph g, void *params) { (void)params; return instantiate(out, g); }
API CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph g, void *params) { (void)params; return instantiate(out, g); }
API CUresult cuGraphDestroy(CUgraph g)
{
    if (!g)
        return CUDA_INVALID_VALUE;
    destroy_graph(g);
    return CUDA_SUCCESS;
}

/* What executables that were launched hold of a GPU, and those that are gone until it is trimmed. */
static uint64_t graph_used[SIM_GPUS], graph_high[2][SIM_GPUS];
static void note_graphs(int d)
{
    const uint64_t now[] = {graph_used[d], graph_used[d] + graph_idle[d]};
    for (int i = 0; i < 2; i++)
        graph_high[i][d] = now[i] > graph_high[i][d] ? now[i] : graph_high[i][d];
}
enum { GRAPH_USED, GRAPH_USED_HIGH, GRAPH_RESERVED, GRAPH_RESERVED_HIGH };
API CUresult cuDeviceGetGraphMemAttribute(CUdevice d, int which, uint64_t *out)
{
    NEED_DEVICE(d);
    if (which < GRAPH_USED || which > GRAPH_RESERVED_HIGH)
        return CUDA_INVALID_VALUE;
    *out = which % 2 ? graph_high[which / 2][d] : graph_used[d] + (which ? graph_idle[d] : 0);
    return CUDA_SUCCESS;
}
API CUresult cuDeviceSetGraphMemAttribute(CUdevice d, int which, const uint64_t *value)
{
    NEED_DEVICE(d);
    if (*value || (which != GRAPH_USED_HIGH && which != GRAPH_RESERVED_HIGH))
        return CUDA_INVALID_VALUE;
    graph_high[which / 2][d] = 0;
    note_graphs(d);
    return CUDA_SUCCESS;
}

API CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    struct graph *graph = exec;
    if (!graph)
        return CUDA_INVALID_VALUE;
    uint64_t held = graph->launched ? graph->bytes : 0;
    graph_used[graph->device] -= held;
    graph_idle[graph->device] += held;
    destroy_graph(graph);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGraphMemTrim(CUdevice d)
{
    NEED_DEVICE(d);
    sim_release(visible[d], graph_idle[d]);
    graph_idle[d] = 0;
    return CUDA_SUCCESS;
}

static CUresult perform_all(const struct graph *graph, struct stream *stream)
{
    CUresult rc = CUDA_SUCCESS;
    for (size_t i = 0; i < graph->count && !rc; i++) {
        const struct node *node = graph->nodes[i];
        if (node->act.type == NODE_HOST)
            rc = call_on_host(stream, &node->act.host);
        else
            rc = node->child ? perform_all(node->child, stream) : perform(&node->act);
    }
    return rc;
}

static CUresult launch_graph(CUgraphExec exec, struct stream *stream)
{
    struct graph *graph = exec;
    if (!graph)
        return CUDA_INVALID_VALUE;
    if (!graph->launched && graph->bytes && !sim_reserve(visible[graph->device], graph->bytes))
        return CUDA_OUT_OF_MEMORY;
    if (!graph->launched && graph->bytes) {
        graph_used[graph->device] += graph->bytes;
        note_graphs(graph->device);
    }
    graph->launched = 1;
    CUresult rc = run(stream, graph->ns);
    return rc || stream->capture ? rc : perform_all(graph, stream);
}

API CUresult cuGraphLaunch(CUgraphExec exec, CUstream s) { return launch_graph(exec, stream_of(s, false)); }
API CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream s) { return launch_graph(exec, stream_of(s, true)); }
API CUresult cuGraphUpload(CUgraphExec exec, CUstream s) { (void)s; return exec ? CUDA_SUCCESS : CUDA_INVALID_VALUE; }
