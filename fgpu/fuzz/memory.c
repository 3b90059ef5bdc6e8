/* Calls that take and give back memory, in any order and of any size, on the simulated driver. After each, the account
 * says what a simple model says: the sum of all charges that something still keeps alive; never less than what the
 * driver has given, and never more than the limit. */
#include <dlfcn.h>
#include <unistd.h>

#include "../src/region.h"
#include "../sim/driver.h"
#include "input.h"
#include "session.h"

/* Functions of the driver that the hook passes on. */
int cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
int cuGraphCreate(CUgraph *, unsigned), cuStreamSynchronize(CUstream);
int cuStreamBeginCapture_v2(CUstream, int), cuStreamEndCapture(CUstream, CUgraph *);

enum { GPUS = 2, THINGS = 48, CHARGES = 64, MIB = 1 << 20, POSIX_FD = 1 };
enum what {
    POINTER, HANDLE, MAP, ARRAY, MIPMAP, PINNED, REGISTERED, POOL, POOLED, GRAPH, EXEC, CAPTURE, IPC, LIMIT, CONTEXT,
    EXPORT
};
/* What keeps charges alive, a bit for each. */
static struct thing { enum what kind; uint64_t key, bytes, charges; CUcontext context; } things[THINGS];
static struct { int gpu; uint64_t bytes; } charges[CHARGES];
static unsigned thing_count, charge_count;
static struct input *rest;
static CUcontext primary[GPUS], here;
static int gpu;
static CUresult (*driver_info)(size_t *, size_t *);

static struct thing *pick(enum what kind) {
    unsigned from = choose(rest, THINGS);
    for (unsigned i = from; i < from + thing_count; i++)
        if (things[i % thing_count].kind == kind) return &things[i % thing_count];
    return NULL;
}

static struct thing *keep(enum what kind, uint64_t key, uint64_t bytes, uint64_t mask) {
    things[thing_count] = (struct thing){kind, key, bytes, mask, here};
    return &things[thing_count++];
}

static void drop(struct thing *thing) { *thing = things[--thing_count]; }

static uint64_t expected(int which) {
    uint64_t alive = 0, sum = 0, reserved = 0;
    for (unsigned i = 0; i < thing_count; i++, sum += reserved, reserved = 0) {
        alive |= things[i].charges;
        if (things[i].kind == POOL && things[i].bytes == (uint64_t)which)
            cuMemPoolGetAttribute((CUmemPool)(uintptr_t)things[i].key, POOL_RESERVED_CURRENT, &reserved);
    }
    for (unsigned i = 0; i < charge_count; i++)
        sum += alive >> i & 1 && charges[i].gpu == which ? charges[i].bytes : 0;
    return sum;
}

static uint64_t charged(int which) {
    uint64_t used = 0;
    REQUIRE(region_used(which, &used));
    return used;
}

static void check(void) {
    size_t left, total;
    for (int i = 0; i < GPUS; i++) {
        cuCtxSetCurrent(primary[i]);
        REQUIRE(!cuMemGetInfo_v2(&left, &total) && !driver_info(&left, &total)); /* the first brings pools up to date */
        REQUIRE(charged(i) == expected(i));
        REQUIRE(charged(i) <= fgpu_limits.gpu[i].mem_bytes && total - left <= charged(i));
    }
    REQUIRE(charged(HOST_MEMORY) == expected(HOST_MEMORY) && charged(HOST_MEMORY) <= fgpu_limits.pinned_bytes);
    cuCtxSetCurrent(here);
}

#define UNKNOWN UINT64_MAX
/* What the last call has charged becomes a charge of its own: so much, or whatever it was where that is not known. */
static uint64_t new_charge(int which, uint64_t bytes) {
    pools_reconcile(false);
    uint64_t grown = charged(which) - expected(which);
    REQUIRE(bytes == UNKNOWN || grown == bytes);
    charges[charge_count].gpu = which;
    charges[charge_count].bytes = grown;
    return 1ull << charge_count++;
}

static void allocate(void) {
    CUdeviceptr out = 0;
    size_t bytes = take_size(rest), pitch = 0, rows = choose(rest, 64);
    unsigned how = choose(rest, 5);
    CUresult rc = how == 0   ? cuMemAlloc_v2(choose(rest, 16) ? &out : NULL, bytes)
                  : how == 1 ? cuMemAllocManaged(&out, bytes, choose(rest, 3))
                  : how == 2 ? cuMemAllocPitch_v2(&out, &pitch, bytes, rows, choose(rest, 2) * 4)
                             : cuMemAlloc_v2(&out, bytes & 0xfffffff);
    if (rc) return;
    bytes = how == 2 ? pitch * rows : how > 2 ? bytes & 0xfffffff : bytes;
    keep(POINTER, out, bytes, new_charge(gpu, bytes));
}

static void create_array(void) {
    static const int formats[] = {0x01, 0x02, 0x03, 0x08, 0x09, 0x0a, 0x10, 0x20}; /* whose size the driver knows */
    CUarray3DDesc d = {.format = formats[choose(rest, 8)], .channels = choose(rest, 6)};
    size_t *sides[] = {&d.width, &d.height, &d.depth};
    void *out = NULL;
    bool levels = choose(rest, 2);
    for (int i = 0; i < 3; i++)
        *sides[i] = choose(rest, 8) == 7 ? take_size(rest) : take(rest, 1);
    if (levels ? cuMipmappedArrayCreate(&out, &d, choose(rest, 40)) : cuArray3DCreate_v2(&out, &d)) return;
    keep(levels ? MIPMAP : ARRAY, (uintptr_t)out, 0, new_charge(gpu, UNKNOWN));
}

static void pin(void) {
    void *out = (void *)(uintptr_t)((1 + take(rest, 1)) << 36);
    size_t bytes = take_size(rest);
    bool registers = choose(rest, 2);
    for (unsigned i = 0; registers && i < thing_count; i++)
        if (things[i].kind == REGISTERED && things[i].key == (uintptr_t)out) return; /* the driver would say so */
    if (registers ? cuMemHostRegister_v2(out, bytes, 0) : cuMemHostAlloc(&out, bytes, choose(rest, 9))) return;
    keep(registers ? REGISTERED : PINNED, (uintptr_t)out, bytes, new_charge(HOST_MEMORY, bytes));
}

static void create_handle(void) {
    CUmemHandle out = 0;
    CUmemProp props = {.type = 1, .location = {(int)choose(rest, 8), (int)choose(rest, 4)}};
    uint64_t bytes = take_size(rest);
    const CUmemProp *said = choose(rest, 16) ? &props : NULL;
    if (cuMemCreate(&out, bytes, said, choose(rest, 16) == 15)) return;
    int which = props.location.type == LOCATION_DEVICE || props.location.type == LOCATION_LOCALITY_DOMAIN
                    ? fgpu_index(props.location.id & 0xff)
                    : HOST_MEMORY;
    keep(HANDLE, out, bytes, new_charge(which, bytes));
}

static void use_handle(struct thing *handle) {
    CUdeviceptr at = 0;
    CUmemHandle other = 0;
    unsigned charge = (unsigned)__builtin_ctzll(handle->charges);
    uint64_t offset = choose(rest, 4) * MIB, bytes = choose(rest, 2) ? take_size(rest) : handle->bytes;
    switch (choose(rest, 4)) {
    case 0: /* what is imported is charged for what is mapped of it */
        cuMemAddressReserve(&at, (bytes & 0xfffffff) + 1, 0, 0, 0);
        if (!cuMemMap(at, bytes & 0xfffffff, offset, handle->key, 0)) {
            uint64_t grown = charged(charges[charge].gpu) - expected(charges[charge].gpu);
            REQUIRE(!grown || handle->bytes == UNKNOWN);
            charges[charge].bytes += grown;
            keep(MAP, at, bytes & 0xfffffff, handle->charges);
        }
        break;
    case 1: { /* as of another process */
        int fd = -1;
        if (cuMemExportToShareableHandle(&fd, handle->key, POSIX_FD, 0)) return;
        keep(EXPORT, 0, 0, handle->charges);
        if (!cuMemImportFromShareableHandle(&other, (void *)(uintptr_t)fd, POSIX_FD))
            keep(HANDLE, other, UNKNOWN, new_charge(charges[charge].gpu, 0));
        close(fd);
        break;
    }
    default:
        if (!cuMemRelease(handle->key))
            drop(handle);
    }
}

static void use_map(struct thing *map) {
    CUmemHandle out = 0;
    if (choose(rest, 2) && !cuMemRetainAllocationHandle(&out, (void *)(uintptr_t)map->key))
        keep(HANDLE, out, map->bytes, map->charges);
    else if (!cuMemUnmap(map->key, map->bytes))
        drop(map);
}

static void use_pool(void) {
    struct thing *pool = pick(POOL);
    CUmemPool out = NULL;
    CUdeviceptr pointer = 0;
    CUpoolProps props = {.type = 1, .location = {LOCATION_DEVICE, (int)choose(rest, 3)}};
    uint64_t bytes = take_size(rest);
    switch (pool ? choose(rest, 8) : 0) {
    case 0:
        if (!cuMemPoolCreate(&out, choose(rest, 8) ? &props : NULL))
            keep(POOL, (uintptr_t)out, (uint64_t)fgpu_index(props.location.id), 0);
        break;
    case 1: cuMemPoolTrimTo((CUmemPool)(uintptr_t)pool->key, bytes); break;
    case 2:
        for (unsigned i = 0; i < thing_count; i++)
            if (things[i].kind == POOLED && things[i].bytes == pool->key) return; /* the simulated one keeps that */
        if (!cuMemPoolDestroy((CUmemPool)(uintptr_t)pool->key))
            drop(pool);
        break;
    default:
        if (cuMemAllocFromPoolAsync(&pointer, bytes, (CUmemPool)(uintptr_t)pool->key, NULL)) return;
        if (pick(CAPTURE)) /* it is the graph's */
            pick(CAPTURE)->charges |= new_charge((int)pool->bytes, bytes);
        else
            keep(POOLED, pointer, pool->key, 0);
    }
}

static void add_node(struct thing *graph) {
    CUnodeParams node = {.type = NODE_MEM_ALLOC};
    CUgraph key = (CUgraph)(uintptr_t)graph->key;
    CUgraphNode out;
    node.alloc.pool = (CUpoolProps){.type = 1, .location = {LOCATION_DEVICE, gpu}};
    node.alloc.bytes = take_size(rest);
    uint64_t bytes = node.alloc.bytes;
    unsigned how = choose(rest, 5);
    CUresult rc = how == 0   ? cuGraphAddMemAllocNode(&out, key, NULL, 0, &node.alloc)
                  : how == 1 ? cuGraphAddNode(&out, key, NULL, 0, &node)
                  : how == 2 ? cuGraphAddNode_v2(&out, key, NULL, NULL, 0, &node)
                  : how == 3 ? cuGraphAddMemAllocNode(&out, key, NULL, 1, &node.alloc) /* a node that is none */
                             : cuGraphAddMemAllocNode(choose(rest, 2) ? &out : NULL, key, NULL, 0, NULL);
    if (!rc)
        graph->charges |= new_charge(gpu, bytes);
}

static void use_graph(void) {
    struct thing *graph = pick(GRAPH), *other = pick(GRAPH);
    CUgraph out = NULL, key = graph ? (CUgraph)(uintptr_t)graph->key : NULL;
    CUgraphNode node;
    switch (graph ? choose(rest, 7) : 0) {
    case 0:
        if (!cuGraphCreate(&out, 0))
            keep(GRAPH, (uintptr_t)out, 0, 0);
        break;
    case 1: case 2: add_node(graph); break;
    case 3:
        if (other != graph && !cuGraphAddChildGraphNode(&node, key, NULL, 0, (CUgraph)(uintptr_t)other->key))
            graph->charges |= other->charges;
        break;
    case 4:
        if (!cuGraphClone(&out, key))
            keep(GRAPH, (uintptr_t)out, 0, graph->charges);
        break;
    case 5:
        if (!cuGraphInstantiateWithFlags(&out, key, 0))
            keep(EXEC, (uintptr_t)out, 0, graph->charges);
        break;
    default:
        if (!cuGraphDestroy(key))
            drop(graph);
    }
}

/* A capture of the default stream, which becomes a graph or is spoilt. */
static void record(void) {
    struct thing *capture = pick(CAPTURE);
    CUgraph graph = NULL;
    CUdeviceptr pointer = 0;
    uint64_t bytes = take_size(rest);
    switch (capture ? 1 + choose(rest, 4) : 0) {
    case 0:
        if (!cuStreamBeginCapture_v2(NULL, (int)choose(rest, 4)))
            keep(CAPTURE, 0, 0, 0);
        break;
    case 1: case 2:
        if (!cuMemAllocAsync(&pointer, bytes, NULL))
            capture->charges |= new_charge(gpu, bytes);
        break;
    case 3: cuStreamSynchronize(NULL); break;
    default:
        if (!cuStreamEndCapture(NULL, &graph))
            keep(GRAPH, (uintptr_t)graph, 0, capture->charges);
        drop(pick(CAPTURE));
    }
}

static void set_limit(void) {
    int which = (int)choose(rest, 12) - 1;
    uint64_t key = KEY(here) * 16 + (unsigned)which, value = take_size(rest);
    struct thing *limit = NULL;
    for (unsigned i = 0; i < thing_count; i++)
        limit = things[i].kind == LIMIT && things[i].key == key ? &things[i] : limit;
    if (cuCtxSetLimit(which, value)) return;
    if (!limit)
        limit = keep(LIMIT, key, 0, new_charge(gpu, UNKNOWN));
    unsigned charge = (unsigned)__builtin_ctzll(limit->charges);
    charges[charge].bytes += charged(gpu) - expected(gpu);
}

static void share(void) {
    struct thing *pointer = pick(POINTER);
    CUshareHandle name;
    CUdeviceptr out;
    if (here != primary[0] || !pointer || cuIpcGetMemHandle(&name, pointer->key)) return;
    if (!cuIpcOpenMemHandle_v2(&out, name, 1))
        keep(IPC, out, pointer->bytes, new_charge(0, UNKNOWN));
}

static void end_context(struct thing *context) {
    CUcontext gone = (CUcontext)(uintptr_t)context->key;
    REQUIRE(!cuCtxDestroy_v2(gone));
    drop(context);
    for (unsigned i = thing_count; i-- > 0;)
        if (things[i].context == gone
            && (things[i].kind == POINTER || things[i].kind == ARRAY || things[i].kind == MIPMAP || things[i].kind == LIMIT))
            drop(&things[i]);
    here = gone == here ? primary[gpu] : here;
    cuCtxSetCurrent(here);
}

/* Another GPU, or a context of its own on this one. */
static void go_elsewhere(void) {
    struct thing *context = pick(CONTEXT);
    CUcontext out;
    if (context)
        end_context(context);
    else if (choose(rest, 2) && !cuCtxCreate_v2(&out, 0, gpu))
        here = (CUcontext)(uintptr_t)keep(CONTEXT, (uintptr_t)out, 0, 0)->key;
    else
        here = primary[gpu = !gpu];
    cuCtxSetCurrent(here);
}

static CUresult give_back(const struct thing *thing) {
    void *key = (void *)(uintptr_t)thing->key;
    switch (thing->kind) {
    case POINTER: return cuMemFree_v2(thing->key);
    case POOLED: return pick(CAPTURE) ? CUDA_INVALID_VALUE : cuMemFreeAsync(thing->key, NULL); /* else recorded */
    case HANDLE: return cuMemRelease(thing->key);
    case MAP: return cuMemUnmap(thing->key, thing->bytes);
    case ARRAY: return cuArrayDestroy(key);
    case MIPMAP: return cuMipmappedArrayDestroy(key);
    case PINNED: return cuMemFreeHost(key);
    case REGISTERED: return cuMemHostUnregister(key);
    case GRAPH: return cuGraphDestroy(key);
    case EXEC: return cuGraphExecDestroy(key);
    case IPC: return cuIpcCloseMemHandle(thing->key);
    default: return CUDA_INVALID_VALUE;
    }
}

static void free_one(void) {
    struct thing garbage = {.kind = (enum what)choose(rest, GRAPH), .key = choose(rest, 2) ? take_size(rest) : 0};
    struct thing *thing = pick((enum what)choose(rest, CONTEXT));
    if (thing && !give_back(thing))
        drop(thing);
    else if (!thing)
        give_back(&garbage);
}

static void step(void) {
    static void (*const use[])(struct thing *) = {use_handle, use_map};
    static void (*const act[])(void) = {allocate, create_array, pin, create_handle, use_pool, use_graph,
                                        record, set_limit, share, go_elsewhere, free_one, free_one};
    unsigned which = choose(rest, 14);
    struct thing *thing = which < 2 ? pick(which ? MAP : HANDLE) : NULL;
    if (which >= 2)
        act[which - 2]();
    else if (thing)
        use[which](thing);
}

static void set_up(struct region **region, struct region *clean) {
    *region = session_region("25.00");
    session_simulate();
    REQUIRE(!cuInit(0));
    void *driver = dlopen(CUDA_LIBRARY, RTLD_NOW);
    driver_info = (CUresult (*)(size_t *, size_t *))(uintptr_t)dlsym(driver, "cuMemGetInfo_v2");
    *clean = **region;
    for (CUdevice device = 0; device < GPUS; device++)
        REQUIRE(!cuDevicePrimaryCtxRetain(&primary[device], device));
}

static void finish(void) {
    for (unsigned i = 0; i < thing_count; i++)
        if (things[i].kind == CAPTURE) {
            CUgraph graph;
            if (!cuStreamEndCapture(NULL, &graph))
                cuGraphDestroy(graph);
            drop(&things[i]);
        }
    for (unsigned i = thing_count; i-- > 0;) /* the later ones first: mappings before what is mapped */
        if (!give_back(&things[i]))
            drop(&things[i]);
    for (unsigned i = thing_count; i-- > 0;)
        if (things[i].kind == CONTEXT)
            end_context(&things[i]);
    for (unsigned i = thing_count; i-- > 0;)
        if (things[i].kind == POOL && !cuMemPoolDestroy((CUmemPool)(uintptr_t)things[i].key))
            drop(&things[i]);
    check();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct region *region, clean;
    if (!region)
        set_up(&region, &clean);
    struct input in = {data, data + size};
    *region = clean;
    session_forget();
    thing_count = charge_count = 0;
    here = primary[gpu = 0];
    cuCtxSetCurrent(here);
    rest = &in;
    while (in.at < in.end && thing_count < THINGS - 2 && charge_count < CHARGES - 2) {
        step();
        check();
    }
    finish();
    return 0;
}
