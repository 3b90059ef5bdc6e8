/* The memory of graphs is charged when its nodes are made, until the graph and all executables of it are gone. */
#include "fgpu.h"

HELPER(cuDeviceGraphMemTrim, (CUdevice));

static CUresult claim_node(const CUallocNode *node, struct hold **hold) {
    int gpu;
    CUresult rc = fgpu_account(node ? &node->pool.location : NULL, node ? node->pool.type : 0, &gpu);
    *hold = NULL;
    return rc || !node ? rc : hold_new(gpu, node->bytes, NULL, hold);
}

/* A graph within a graph: its memory is the outer one's, too, or alone where the inner one is given away. */
static void adopt(CUgraph graph, CUgraph child, bool moved) {
    ledger_share(HELD_GRAPH, KEY(child), HELD_GRAPH, KEY(graph));
    if (moved)
        ledger_drop_all(HELD_GRAPH, KEY(child));
}

static const CUallocNode *memory_of(const CUnodeParams *node) {
    return node && node->type == NODE_MEM_ALLOC ? &node->alloc : NULL;
}

static CUresult added(CUresult rc, struct hold *hold, CUgraph graph, const CUnodeParams *node) {
    if (!rc && node && node->type == NODE_CHILD_GRAPH)
        adopt(graph, node->child.graph, node->child.ownership == CHILD_MOVED);
    return hold_settle(rc, hold, HELD_GRAPH, KEY(graph));
}

#define NODE CUgraphNode *out, CUgraph graph, const CUgraphNode *after
#define ADD_NODE(name, memory, params, args, node) \
    WRAP(name, params) { \
        struct hold *hold; \
        CUresult rc = claim_node(memory, &hold); \
        return rc ? rc : added(CALL(name, args), hold, graph, node); \
    }
#define ADD_NODE_WITH_EDGES(name) \
    ADD_NODE(name, memory_of(node), (NODE, const void *edges, size_t count, CUnodeParams *node), \
             (out, graph, after, edges, count, node), node)
ADD_NODE(cuGraphAddMemAllocNode, node, (NODE, size_t count, CUallocNode *node), (out, graph, after, count, node), NULL)
ADD_NODE(cuGraphAddNode, memory_of(node), (NODE, size_t count, CUnodeParams *node),
         (out, graph, after, count, node), node)
ADD_NODE_WITH_EDGES(cuGraphAddNode_v2)
ADD_NODE_WITH_EDGES(cuGraphAddNode_v3)

WRAP(cuGraphAddChildGraphNode, (NODE, size_t count, CUgraph child)) {
    CUresult rc = CALL(cuGraphAddChildGraphNode, (out, graph, after, count, child));
    if (!rc)
        adopt(graph, child, false);
    return rc;
}

WRAP(cuGraphClone, (CUgraph *out, CUgraph graph)) {
    CUresult rc = CALL(cuGraphClone, (out, graph));
    if (!rc)
        adopt(*out, graph, false);
    return rc;
}

#define INSTANTIATE(name, exec, params, args) \
    WRAP(name, params) { \
        CUresult rc = CALL(name, args); \
        if (!rc) \
            ledger_share(HELD_GRAPH, KEY(graph), HELD_EXEC, KEY(exec)); \
        return rc; \
    }
#define INSTANTIATE_LOGGING(name) \
    INSTANTIATE(name, *out, (CUgraphExec *out, CUgraph graph, CUgraphNode *bad, char *log, size_t room), \
                (out, graph, bad, log, room))
#define INSTANTIATE_WITH(name, type) \
    INSTANTIATE(name, *out, (CUgraphExec *out, CUgraph graph, type how), (out, graph, how))
INSTANTIATE_LOGGING(cuGraphInstantiate)
INSTANTIATE_LOGGING(cuGraphInstantiate_v2)
INSTANTIATE_WITH(cuGraphInstantiateWithFlags, unsigned long long)
INSTANTIATE_WITH(cuGraphInstantiateWithParams, void *)
INSTANTIATE_WITH(cuGraphInstantiateWithParams_ptsz, void *)
INSTANTIATE(cuGraphExecUpdate, exec, (CUgraphExec exec, CUgraph graph, CUgraphNode *bad, int *result),
            (exec, graph, bad, result))
INSTANTIATE(cuGraphExecUpdate_v2, exec, (CUgraphExec exec, CUgraph graph, void *result), (exec, graph, result))

/* Memory that an executable has used stays with the driver until it is trimmed: give it back with the charge. */
WRAP(cuGraphExecDestroy, (CUgraphExec exec)) {
    CUresult rc = CALL(cuGraphExecDestroy, (exec));
    bool had = !rc && ledger_drop_all(HELD_EXEC, KEY(exec));
    for (CUdevice device = 0; had && fgpu_index(device) >= 0; device++)
        CALL(cuDeviceGraphMemTrim, (device));
    return rc;
}

WRAP(cuGraphDestroy, (CUgraph graph)) {
    CUresult rc = CALL(cuGraphDestroy, (graph));
    if (!rc)
        ledger_drop_all(HELD_GRAPH, KEY(graph));
    return rc;
}
