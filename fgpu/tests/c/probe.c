/* A CUDA program driven line by line by the tests: reads a command from stdin, answers with one line. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../src/region.h"
#include "driver.h"

enum { SLOTS = 64 };
struct slot {
    char how[24];
    uint64_t value, size;
    CUgraph graph;
    CUgraphExec exec;
} slots[SLOTS];
static CUcontext context;
static CUmemPool pool;
static CUstream stream;

/* From the own pool of a GPU that need not be the current one. */
static CUresult alloc_default(struct slot *s, size_t bytes, CUdevice device)
{
    CUmemPool its = NULL;
    CU(cuDeviceGetDefaultMemPool, (CUmemPool *, CUdevice), &its, device);
    return CU(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemPool, CUstream), (CUdeviceptr *)&s->value, bytes, its, NULL);
}

static CUresult alloc_pool(struct slot *s, size_t bytes)
{
    CUpoolProps props = {.type = 1, .location = {LOCATION_DEVICE, 0}};
    CUresult rc = pool ? CUDA_SUCCESS : CU(cuMemPoolCreate, (CUmemPool *, const CUpoolProps *), &pool, &props);
    if (rc)
        return rc;
    if (strstr(s->how, "ptsz"))
        return CU(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr *, size_t, CUmemPool, CUstream), (CUdeviceptr *)&s->value, bytes, pool, NULL);
    return CU(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemPool, CUstream), (CUdeviceptr *)&s->value, bytes, pool, NULL);
}

static CUresult alloc_vmm(struct slot *s, size_t bytes)
{
    static const char *const places[] = {"", "", "_host", "_numa", "_current", "_invisible", "_domain", "_future"};
    int place = LOCATION_DEVICE;
    for (int i = 2; i < 8; i++)
        place = !strcmp(s->how + 3, places[i]) ? i : place;
    CUmemProp props = {.type = 1, .location = {place, place == 6 ? 1 << 8 : 0}};
    return CU(cuMemCreate, (CUmemHandle *, size_t, const CUmemProp *, unsigned long long), (CUmemHandle *)&s->value, bytes, &props, 0);
}

static CUresult alloc_array(struct slot *s, size_t bytes)
{
    size_t width = bytes / 4096; /* x 1024 rows x one 32-bit channel */
    CUarrayDesc flat = {width, 1024, 0x20, 1};
    CUarray3DDesc deep = {width, 512, 2, 0x20, 1, 0};
    CUarray3DDesc sparse = {width, 512, 2, 0x20, 1, ARRAY_DEFERRED};
    CUarray *out = (CUarray *)&s->value;
    if (!strcmp(s->how, "array"))
        return CU(cuArrayCreate_v2, (CUarray *, const CUarrayDesc *), out, &flat);
    if (!strcmp(s->how, "array_mipmap"))
        return CU(cuMipmappedArrayCreate, (CUmipmap *, const CUarray3DDesc *, unsigned), out, &deep, 1);
    return CU(cuArray3DCreate_v2, (CUarray *, const CUarray3DDesc *), out, strstr(s->how, "deferred") ? &sparse : &deep);
}

static CUresult alloc_graph(struct slot *s, size_t bytes)
{
    CUnodeParams params = {.type = NODE_MEM_ALLOC, .alloc = {.pool = {.type = 1, .location = {LOCATION_DEVICE, 0}}, .bytes = bytes}};
    CUgraphNode node;
    CUresult rc;
    if (!s->graph && (rc = CU(cuGraphCreate, (CUgraph *, unsigned), &s->graph, 0)))
        return rc;
    if (!strcmp(s->how, "graph"))
        return CU(cuGraphAddMemAllocNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUallocNode *), &node, s->graph, NULL, 0, &params.alloc);
    if (!strcmp(s->how, "graph_node3"))
        return CU(cuGraphAddNode_v3, (CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t, CUnodeParams *), &node, s->graph, NULL, NULL, 0, &params);
    if (!strcmp(s->how, "graph_node"))
        return CU(cuGraphAddNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUnodeParams *), &node, s->graph, NULL, 0, &params);
    return CU(cuGraphAddNode_v2, (CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t, CUnodeParams *), &node, s->graph, NULL, NULL, 0, &params);
}

static CUresult alloc_captured(struct slot *s, size_t bytes)
{
    CUstream recorded;
    CU(cuStreamCreate, (CUstream *, unsigned), &recorded, 0);
    unsigned char edges[8] = {0, 0, !strcmp(s->how, "captured_edge") ? 1 : !strcmp(s->how, "captured_unknown") ? 255 : 0};
    if (!strcmp(s->how, "captured_to")) {
        CU(cuGraphCreate, (CUgraph *, unsigned), &s->graph, 0);
        CU(cuStreamBeginCaptureToGraph, (CUstream, CUgraph, const CUgraphNode *, const void *, size_t, int), recorded, s->graph, NULL, NULL, 0, 0);
    } else
        CU(cuStreamBeginCapture_v2, (CUstream, int), recorded, 0);
    if (edges[2])
        CU(cuStreamUpdateCaptureDependencies_v2, (CUstream, CUgraphNode *, const void *, size_t, unsigned), recorded, NULL, edges, 1, 0);
    CUresult rc = CU(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream), (CUdeviceptr *)&s->value, bytes, recorded);
    if (!rc)
        CU(cuMemFreeAsync, (CUdeviceptr, CUstream), s->value, recorded);
    if (!strcmp(s->how, "captured_spoilt"))
        CU(cuStreamSynchronize, (CUstream), recorded);
    if (!strcmp(s->how, "captured_left")) {
        CU(cuStreamDestroy_v2, (CUstream), recorded);
        return rc;
    }
    CUresult ended = CU(cuStreamEndCapture, (CUstream, CUgraph *), recorded, &s->graph);
    return rc ? rc : ended;
}

/* Page-locked host memory; what is registered is any address, far from others. */
static CUresult alloc_pinned(struct slot *s, size_t bytes)
{
    void **out = (void **)&s->value, *own = (void *)((uintptr_t)(s - slots + 1) << 36);
    if (!strcmp(s->how, "pinned_alloc"))
        return CU(cuMemHostAlloc, (void **, size_t, unsigned), out, bytes, 0);
    if (!strcmp(s->how, "pinned"))
        return CU(cuMemAllocHost_v2, (void **, size_t), out, bytes);
    *out = strcmp(s->how, "pinned_bad") ? own : NULL;
    return strcmp(s->how, "pinned_old") ? CU(cuMemHostRegister_v2, (void *, size_t, unsigned), *out, bytes, 0)
                                        : CU(cuMemHostRegister, (void *, size_t, unsigned), *out, bytes, 0);
}

static CUresult alloc(struct slot *s, size_t bytes)
{
    size_t pitch;
    CUdeviceptr *out = (CUdeviceptr *)&s->value;
    if (!strcmp(s->how, "plain"))
        return CU(cuMemAlloc_v2, (CUdeviceptr *, size_t), out, bytes);
    if (!strcmp(s->how, "managed"))
        return CU(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned), out, bytes, 1);
    if (!strcmp(s->how, "managed_bad"))
        return CU(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned), out, bytes, 0);
    if (!strcmp(s->how, "pitch"))
        return CU(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned), out, &pitch, bytes / 1024, 1024, 4);
    if (!strcmp(s->how, "async") || !strcmp(s->how, "async_stream"))
        return CU(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream), out, bytes, s->how[5] ? stream : NULL);
    if (!strcmp(s->how, "async_ptsz"))
        return CU(cuMemAllocAsync_ptsz, (CUdeviceptr *, size_t, CUstream), out, bytes, NULL);
    if (!strncmp(s->how, "pool_of_", 8))
        return alloc_default(s, bytes, s->how[8] - '0');
    if (!strncmp(s->how, "pool", 4))
        return alloc_pool(s, bytes);
    if (!strncmp(s->how, "vmm", 3))
        return alloc_vmm(s, bytes);
    if (!strncmp(s->how, "array", 5))
        return alloc_array(s, bytes);
    if (!strncmp(s->how, "pinned", 6))
        return alloc_pinned(s, bytes);
    return strncmp(s->how, "captured", 8) ? alloc_graph(s, bytes) : alloc_captured(s, bytes);
}

static CUresult release(struct slot *s)
{
    if (s->exec)
        CU(cuGraphExecDestroy, (CUgraphExec), s->exec);
    if (s->graph)
        return CU(cuGraphDestroy, (CUgraph), s->graph);
    if (!strcmp(s->how, "pinned") || !strcmp(s->how, "pinned_alloc"))
        return CU(cuMemFreeHost, (void *), (void *)(uintptr_t)s->value);
    if (!strncmp(s->how, "pinned", 6))
        return CU(cuMemHostUnregister, (void *), (void *)(uintptr_t)s->value);
    if (!strncmp(s->how, "vmm", 3))
        return CU(cuMemRelease, (CUmemHandle), s->value);
    if (!strcmp(s->how, "array_mipmap"))
        return CU(cuMipmappedArrayDestroy, (CUmipmap), (CUmipmap)(uintptr_t)s->value);
    if (!strncmp(s->how, "array", 5))
        return CU(cuArrayDestroy, (CUarray), (CUarray)(uintptr_t)s->value);
    if (strstr(s->how, "ptsz"))
        return CU(cuMemFreeAsync_ptsz, (CUdeviceptr, CUstream), s->value, NULL);
    if (!strncmp(s->how, "async", 5) || !strncmp(s->how, "pool", 4))
        return CU(cuMemFreeAsync, (CUdeviceptr, CUstream), s->value, NULL);
    return CU(cuMemFree_v2, (CUdeviceptr), s->value);
}

static CUresult enter(CUdevice device)
{
    CUresult rc = CU(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice), &context, device);
    return rc ? rc : CU(cuCtxSetCurrent, (CUcontext), context);
}

static CUresult new_context(int version, CUdevice device)
{
    CUgreenCtx green;
    switch (version) {
    case 1: return CU(cuCtxCreate, (CUcontext *, unsigned, CUdevice), &context, 0, device);
    case 2: return CU(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice), &context, 0, device);
    case 3: return CU(cuCtxCreate_v3, (CUcontext *, void *, int, unsigned, CUdevice), &context, NULL, 0, 0, device);
    case 4: return CU(cuCtxCreate_v4, (CUcontext *, void *, unsigned, CUdevice), &context, NULL, 0, device);
    default: return CU(cuGreenCtxCreate, (CUgreenCtx *, CUresourceDesc, CUdevice, unsigned), &green, NULL, device, 0);
    }
}

static CUresult vmm(const char *what, struct slot *s, size_t bytes)
{
    CUmemHandle again;
    if (!strcmp(what, "map")) {
        CU(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long), (CUdeviceptr *)&s->size, bytes, 0, 0, 0);
        return CU(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long), s->size, bytes, 0, s->value, 0);
    }
    if (!strcmp(what, "release"))
        return CU(cuMemRelease, (CUmemHandle), s->value);
    if (!strcmp(what, "retain"))
        return CU(cuMemRetainAllocationHandle, (CUmemHandle *, void *), &again, (void *)(uintptr_t)s->size);
    return CU(cuMemUnmap, (CUdeviceptr, size_t), s->size, bytes);
}

static CUresult instantiate(const char *how, struct slot *s)
{
    if (!strcmp(how, "v1"))
        return CU(cuGraphInstantiate, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t), &s->exec, s->graph, NULL, NULL, 0);
    if (!strcmp(how, "v2"))
        return CU(cuGraphInstantiate_v2, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t), &s->exec, s->graph, NULL, NULL, 0);
    if (!strcmp(how, "params"))
        return CU(cuGraphInstantiateWithParams, (CUgraphExec *, CUgraph, void *), &s->exec, s->graph, NULL);
    return CU(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long), &s->exec, s->graph, 0);
}

#include "probe_memory.h"

static void *open_nvml(nvmlDevice *device)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    ((int (*)(void))(uintptr_t)dlsym(library, "nvmlInit_v2"))();
    ((int (*)(unsigned, nvmlDevice *))(uintptr_t)dlsym(library, "nvmlDeviceGetHandleByIndex_v2"))(0, device);
    return library;
}

/* Result, count and first process of a function that lists processes, in either of its two forms. */
static void listed(const char *name, size_t form, char *out, size_t room)
{
    nvmlDevice device;
    void *function = dlsym(open_nvml(&device), name);
    unsigned count = 8;
    union { nvmlProcessV1 one[8]; nvmlProcessV2 two[8]; } list = {.one = {{0, 0}}};
    int rc = ((int (*)(nvmlDevice, unsigned *, void *))(uintptr_t)function)(device, &count, &list);
    snprintf(out, room, "%d %u %u:%llu", rc, count, list.one[0].pid, form == 1 ? list.one[0].used : list.two[0].used);
}

static int nvml(char *out, size_t room)
{
    nvmlDevice device;
    void *library = open_nvml(&device);
    nvmlMemoryV1 one = {0};
    nvmlMemoryV2 two = {.version = sizeof two | 2u << 24};
    int a = ((int (*)(nvmlDevice, nvmlMemoryV1 *))(uintptr_t)dlsym(library, "nvmlDeviceGetMemoryInfo"))(device, &one);
    int b = ((int (*)(nvmlDevice, nvmlMemoryV2 *))(uintptr_t)dlsym(library, "nvmlDeviceGetMemoryInfo_v2"))(device, &two);
    int used = snprintf(out, room, "%d %llu %llu %d %llu %llu", a, one.total, one.used, b, two.total, two.used);
    nvmlProcessV2 list[300];
    unsigned count = 300;
    int c = ((int (*)(nvmlDevice, unsigned *, nvmlProcessV2 *))(uintptr_t)dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3"))(device, &count, list);
    used += snprintf(out + used, room - (size_t)used, " %d", c);
    for (unsigned i = 0; !c && i < count; i++)
        used += snprintf(out + used, room - (size_t)used, " %u:%llu", list[i].pid, list[i].used);
    return used;
}

/* Die with the region's lock held, as a process killed in the middle of an allocation would. */
/* Be killed or stopped while it holds the region's lock. */
static int lock_and(int signal)
{
    int fd = open(getenv("FGPU_REGION"), O_RDWR);
    struct region *region = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pthread_mutex_lock(&region->lock);
    kill(getpid(), signal);
    return pthread_mutex_unlock(&region->lock);
}

static const char *owner(void *address)
{
    Dl_info info;
    if (!address)
        return dlerror() ? "none" : "silent";
    if (!dladdr(address, &info))
        return "unknown";
    return strstr(info.dli_fname, "libfgpu") ? "hook" : strstr(info.dli_fname, "/libcuda.so") || strstr(info.dli_fname, "/libnvidia-ml.so") ? "driver" : info.dli_fname;
}

static const char *looked_up(const char *how, const char *name, int version, unsigned long long flags, CUresult *rc)
{
    void *found = NULL;
    int status;
    *rc = 0;
    dlerror();
    if (!strcmp(how, "dlsym"))
        found = dlsym(cuda_library, name);
    else if (!strcmp(how, "default"))
        found = dlsym(RTLD_DEFAULT, name);
    else if (!strcmp(how, "next"))
        found = dlsym(RTLD_NEXT, name);
    else if (!strcmp(how, "dlvsym"))
        found = dlvsym(cuda_library, name, "SIM_1");
    else if (!strcmp(how, "nvml"))
        found = dlsym(dlopen("libnvidia-ml.so.1", RTLD_NOW), name);
    else if (!strcmp(how, "dlsym_of_dlsym"))
        found = ((void *(*)(void *, const char *))(uintptr_t)dlsym(dlopen("libc.so.6", RTLD_NOW), "dlsym"))(cuda_library, name);
    else if (!strcmp(how, "gpa1"))
        *rc = CU(cuGetProcAddress, (const char *, void **, int, uint64_t), name, &found, version, flags);
    else
        *rc = CU(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *), name, &found, version, flags, &status);
    return !found && !strncmp(how, "gpa", 3) ? "none" : owner(found);
}

/* In a child: what becomes of CUDA, and of our own memory. */
static void in_fork(char *out, size_t room, size_t bytes)
{
    int fds[2], rc[2] = {-1, -1};
    if (pipe(fds))
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr p;
        rc[0] = CU(cuMemAlloc_v2, (CUdeviceptr *, size_t), &p, bytes);
        rc[1] = CU(cuInit, (unsigned), 0);
        rc[1] = rc[1] ? rc[1] : enter(0);
        rc[1] = rc[1] ? rc[1] : CU(cuMemAlloc_v2, (CUdeviceptr *, size_t), &p, bytes);
        if (write(fds[1], rc, sizeof rc) != sizeof rc)
            _exit(1);
        _exit(0);
    }
    if (read(fds[0], rc, sizeof rc) != sizeof rc)
        exit(1);
    waitpid(child, NULL, 0);
    snprintf(out, room, "%d %d", rc[0], rc[1]);
}

static void answer(char *line, char *out, size_t room)
{
    char verb[24] = "", how[24] = "", name[64] = "";
    unsigned long long bytes = 0, flags = 0;
    int number = 0;
    CUresult rc = -1;
    sscanf(line, "%23s", verb);
    size_t free_bytes = 0, total = 0;
    if (!strcmp(verb, "init"))
        rc = CU(cuInit, (unsigned), 0);
    else if (memory_verb(verb, line, out, room))
        return;
    else if (sscanf(line, "enter %d", &number) == 1)
        rc = enter(number);
    else if (sscanf(line, "forget %d", &number) == 1)
        slots[number] = (struct slot){0};
    else if (sscanf(line, "leave %d", &number) == 1)
        rc = CU(cuDevicePrimaryCtxRelease_v2, (CUdevice), number);
    else if (sscanf(line, "reset %d", &number) == 1)
        rc = CU(cuDevicePrimaryCtxReset_v2, (CUdevice), number);
    else if (sscanf(line, "context %d", &number) == 1)
        rc = new_context(number, 0);
    else if (!strcmp(verb, "destroy"))
        rc = CU(cuCtxDestroy_v2, (CUcontext), context);
    else if (!strcmp(verb, "detach"))
        rc = CU(cuCtxDetach, (CUcontext), context);
    else if (!strcmp(verb, "attach"))
        rc = CU(cuCtxAttach, (CUcontext *, unsigned), &context, 0);
    else if (sscanf(line, "alloc %23s %llu %d", how, &bytes, &number) == 3) {
        strcpy(slots[number].how, how);
        rc = alloc(&slots[number], bytes);
    } else if (sscanf(line, "free %d", &number) == 1) {
        rc = release(&slots[number]);
        slots[number] = (struct slot){0};
    } else if (sscanf(line, "vmm %23s %d %llu", how, &number, &bytes) == 3)
        rc = vmm(how, &slots[number], bytes);
    else if (sscanf(line, "instantiate %23s %d", how, &number) == 2)
        rc = instantiate(how, &slots[number]);
    else if (sscanf(line, "ungraph %d", &number) == 1) {
        rc = CU(cuGraphDestroy, (CUgraph), slots[number].graph);
        slots[number].graph = NULL;
    } else if (sscanf(line, "launch %d", &number) == 1)
        rc = CU(cuGraphLaunch, (CUgraphExec, CUstream), slots[number].exec, stream);
    else if (!strcmp(verb, "sync"))
        rc = CU(cuCtxSynchronize, (void));
    else if (!strcmp(verb, "unpool")) {
        rc = CU(cuMemPoolDestroy, (CUmemPool), pool);
        pool = NULL;
    } else if (!strcmp(verb, "stream"))
        rc = CU(cuStreamCreate, (CUstream *, unsigned), &stream, 0);
    else if (!strcmp(verb, "info")) {
        rc = CU(cuMemGetInfo_v2, (size_t *, size_t *), &free_bytes, &total);
        snprintf(out, room, "%d %zu %zu", rc, free_bytes, total);
        return;
    } else if (sscanf(line, "total %d", &number) == 1) {
        rc = CU(cuDeviceTotalMem_v2, (size_t *, CUdevice), &total, number);
        snprintf(out, room, "%d %zu", rc, total);
        return;
    } else if (sscanf(line, "lookup %23s %63s %d %llu", how, name, &number, &flags) >= 2) {
        const char *whose = looked_up(how, name, number, flags, &rc);
        snprintf(out, room, "%s %d", whose, rc);
        return;
    } else if (sscanf(line, "bare %63s", name) == 1)
        rc = ((CUresult(*)(void))(uintptr_t)by_dlsym(name))();
    else if (!strcmp(verb, "layout")) {
        snprintf(out, room, "%zu %zu %zu %zu %zu %zu %zu", sizeof(struct region_gpu), sizeof(struct region_slot),
                 offsetof(struct region, gpu), offsetof(struct region, slot), offsetof(struct region, high),
                 offsetof(struct region, share), sizeof(struct region_share));
        return;
    } else if (sscanf(line, "listed %63s %d", name, &number) == 2) {
        listed(name, (size_t)number, out, room);
        return;
    } else if (!strcmp(verb, "nvml")) {
        nvml(out, room);
        return;
    } else if (sscanf(line, "fork %llu", &bytes) == 1) {
        in_fork(out, room, bytes);
        return;
    } else if (!strcmp(verb, "closefds"))
        for (rc = 0, number = 3; number < 1024; number++)
            close(number);
    else if (sscanf(line, "multi %d", &number) == 1) {
        CUlaunchParams list[2] = {{.params = NULL}, {.params = NULL}};
        rc = CU(cuLaunchCooperativeKernelMultiDevice, (CUlaunchParams *, unsigned, unsigned), list, (unsigned)number, 0);
    } else if (!strcmp(verb, "exec"))
        rc = execlp("sleep", "sleep", "60", NULL);
    else if (!strcmp(verb, "kernel")) {
        uint64_t ns = 1000000;
        void *params[] = {&ns};
        rc = CU(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **),
                NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
    } else if (!strcmp(verb, "lockstop"))
        rc = lock_and(SIGSTOP);
    else if (!strcmp(verb, "lockdie"))
        lock_and(SIGKILL);
    snprintf(out, room, "%d", rc);
}

int main(void)
{
    char line[256], out[8192];
    open_cuda();
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        answer(line, out, sizeof out);
        puts(out);
    }
    return 0;
}
