/* A graph's memory is charged when its nodes are made, until the graph and all executables made from it are gone. */
#include <pthread.h>

#include "fgpu.h"

static pthread_mutex_t graphs = PTHREAD_MUTEX_INITIALIZER;

/* Add to (or take from) what the graph is charged for on one GPU. */
static CUresult change(CUgraph graph, int gpu, uint64_t bytes, bool more) {
    CUresult rc = CUDA_SUCCESS;
    pthread_mutex_lock(&graphs);
    struct hold *hold = ledger_find(HELD_GRAPH, KEY(graph), gpu);
    if (!hold && !(rc = hold_new(gpu, 0, NULL, &hold)))
        ledger_put(HELD_GRAPH, KEY(graph), 0, hold);
    if (!rc && more && bytes > UINT64_MAX - hold->bytes)
        rc = CUDA_OUT_OF_MEMORY;
    if (!rc)
        rc = hold_resize(hold, more ? hold->bytes + bytes : hold->bytes - bytes);
    pthread_mutex_unlock(&graphs);
    return rc;
}

CUresult graph_claim(CUgraph graph, int gpu, uint64_t bytes) {
    return change(graph, gpu, bytes, true);
}

CUresult graph_settle(CUresult rc, CUgraph graph, int gpu, uint64_t bytes) {
    if (rc)
        change(graph, gpu, bytes, false);
    return rc;
}

#define ADD_NODE(params, call) \
    CUresult rc = fgpu_ready(); \
    int gpu = !rc && (params)->pool.location.type == LOCATION_DEVICE ? fgpu_index((params)->pool.location.id) : -1; \
    if (rc || gpu < 0) \
        return rc ? rc : call; \
    uint64_t bytes = (params)->bytes; \
    rc = graph_claim(graph, gpu, bytes); \
    return rc ? rc : graph_settle(call, graph, gpu, bytes)

EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                       CUallocNode *params) {
    if (!params)
        return CUDA_INVALID_VALUE;
    ADD_NODE(params, CALL(cuGraphAddMemAllocNode, out, graph, after, count, params));
}

EXPORT CUresult cuGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                               CUnodeParams *params) {
    if (!params || params->type != NODE_MEM_ALLOC)
        return CALL(cuGraphAddNode, out, graph, after, count, params);
    ADD_NODE(&params->alloc, CALL(cuGraphAddNode, out, graph, after, count, params));
}

EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, const void *edges,
                                  size_t count, CUnodeParams *params) {
    if (!params || params->type != NODE_MEM_ALLOC)
        return CALL(cuGraphAddNode_v2, out, graph, after, edges, count, params);
    ADD_NODE(&params->alloc, CALL(cuGraphAddNode_v2, out, graph, after, edges, count, params));
}

static CUresult instantiated(CUresult rc, const CUgraphExec *out, CUgraph graph) {
    if (!rc)
        ledger_share(HELD_GRAPH, KEY(graph), HELD_EXEC, KEY(*out));
    return rc;
}

#define INSTANTIATE_V1(name) \
    EXPORT CUresult name(CUgraphExec *out, CUgraph graph, CUgraphNode *bad, char *log, size_t room) \
    { \
        return instantiated(CALL(name, out, graph, bad, log, room), out, graph); \
    }
#define INSTANTIATE(name, type) \
    EXPORT CUresult name(CUgraphExec *out, CUgraph graph, type how) \
    { \
        return instantiated(CALL(name, out, graph, how), out, graph); \
    }
INSTANTIATE_V1(cuGraphInstantiate)
INSTANTIATE_V1(cuGraphInstantiate_v2)
INSTANTIATE(cuGraphInstantiateWithFlags, unsigned long long)
INSTANTIATE(cuGraphInstantiateWithParams, void *)
INSTANTIATE(cuGraphInstantiateWithParams_ptsz, void *)

/* Memory that an executable has used stays with the driver until it is trimmed: give it back with the charge. */
EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
    CUresult rc = CALL(cuGraphExecDestroy, exec);
    bool had = false;
    while (!rc && ledger_drop(HELD_EXEC, KEY(exec), NULL))
        had = true;
    for (CUdevice device = 0; had && fgpu_index(device) >= 0; device++)
        CALL(cuDeviceGraphMemTrim, device);
    return rc;
}

EXPORT CUresult cuGraphDestroy(CUgraph graph) {
    CUresult rc = CALL(cuGraphDestroy, graph);
    while (!rc && ledger_drop(HELD_GRAPH, KEY(graph), NULL)) {
    }
    return rc;
}
