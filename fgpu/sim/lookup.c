/* How programs find the simulated driver's functions by cuGetProcAddress. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

#include "cuda.h"

CUresult cuMemAlloc_v9(CUdeviceptr *, size_t);

/* cuGetProcAddress: base name, the version it was introduced with, and its two flavours of default stream. */
#define PLAIN(name, since, variant) {#name, since, (void *)(uintptr_t)variant, NULL},
#define STREAMED(name, since) {#name, since, (void *)(uintptr_t)name, (void *)(uintptr_t)name##_ptsz},
static const struct { const char *name; int since; void *plain, *per_thread; } addresses[] = {
    PLAIN(cuInit, 2000, cuInit) PLAIN(cuMemAlloc, 2000, cuMemAlloc) PLAIN(cuMemAlloc, 3020, cuMemAlloc_v2)
    PLAIN(cuMemAlloc, 99000, cuMemAlloc_v9) PLAIN(cuMemFree, 3020, cuMemFree_v2) PLAIN(cuMemAllocPitch, 3020, cuMemAllocPitch_v2)
    PLAIN(cuMemAllocManaged, 6000, cuMemAllocManaged) PLAIN(cuMemGetInfo, 3020, cuMemGetInfo_v2)
    PLAIN(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2) PLAIN(cuDeviceGet, 2000, cuDeviceGet)
    PLAIN(cuDeviceGetCount, 2000, cuDeviceGetCount) PLAIN(cuCtxCreate, 3020, cuCtxCreate_v2)
    PLAIN(cuCtxCreate, 13000, cuCtxCreate_v4) PLAIN(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain)
    PLAIN(cuCtxSetCurrent, 4000, cuCtxSetCurrent) PLAIN(cuMemCreate, 10020, cuMemCreate)
    PLAIN(cuMemAllocHost, 3020, cuMemAllocHost_v2) PLAIN(cuMemHostAlloc, 2020, cuMemHostAlloc) PLAIN(cuGetProcAddress, 12000, cuGetProcAddress_v2)
    STREAMED(cuMemAllocAsync, 11020) STREAMED(cuMemAllocFromPoolAsync, 11020) STREAMED(cuMemFreeAsync, 11020)
    STREAMED(cuLaunchKernel, 4000) STREAMED(cuLaunchKernelEx, 11060) STREAMED(cuLaunchCooperativeKernel, 9000)
    STREAMED(cuGraphLaunch, 10000)
    PLAIN(cuGraphAddNode, 12020, cuGraphAddNode) PLAIN(cuGraphAddNode, 12030, cuGraphAddNode_v2) PLAIN(cuGraphAddNode, 99000, cuGraphAddNode_v3)
    PLAIN(cuGraphAddKernelNode, 10000, cuGraphAddKernelNode) PLAIN(cuGraphAddKernelNode, 12000, cuGraphAddKernelNode_v2)
    PLAIN(cuGraphInstantiate, 10000, cuGraphInstantiate) PLAIN(cuGraphInstantiate, 11000, cuGraphInstantiate_v2)
    PLAIN(cuGraphInstantiate, 12000, cuGraphInstantiateWithFlags)
    PLAIN(cuStreamGetCaptureInfo, 11030, cuStreamGetCaptureInfo_v2) PLAIN(cuStreamGetCaptureInfo, 12030, cuStreamGetCaptureInfo_v3)
    PLAIN(cuMemAdvise, 8000, cuMemAdvise) PLAIN(cuMemAdvise, 12020, cuMemAdvise_v2)
    PLAIN(cuMemPrefetchAsync, 8000, cuMemPrefetchAsync) PLAIN(cuMemPrefetchAsync, 12020, cuMemPrefetchAsync_v2)
    PLAIN(cuGraphGetEdges, 10000, cuGraphGetEdges) PLAIN(cuGraphGetEdges, 12030, cuGraphGetEdges_v2)
    PLAIN(cuGraphNodeGetDependencies, 10000, cuGraphNodeGetDependencies) PLAIN(cuGraphNodeGetDependencies, 12030, cuGraphNodeGetDependencies_v2)
    PLAIN(cuGraphAddDependencies, 10000, cuGraphAddDependencies) PLAIN(cuGraphAddDependencies, 12030, cuGraphAddDependencies_v2)
};

/* A function by the name it is exported under, from the symbols of this library: dlsym could be somebody else's. */
static void *exported(const char *name)
{
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *table = NULL;
    uint32_t hash = 5381;
    Dl_info self;
    struct link_map *object = NULL;
    if (!dladdr1((void *)(uintptr_t)exported, &self, (void **)&object, RTLD_DL_LINKMAP))
        return NULL;
    for (const ElfW(Dyn) *dyn = object->l_ld; dyn->d_tag != DT_NULL; dyn++) {
        symbols = dyn->d_tag == DT_SYMTAB ? (const void *)dyn->d_un.d_ptr : symbols;
        strings = dyn->d_tag == DT_STRTAB ? (const void *)dyn->d_un.d_ptr : strings;
        table = dyn->d_tag == DT_GNU_HASH ? (const void *)dyn->d_un.d_ptr : table;
    }
    if (!symbols || !strings || !table)
        return NULL;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    const uint32_t *buckets = table + 4 + table[2] * 2, *chain = buckets + table[0];
    for (uint32_t i = buckets[hash % table[0]]; i >= table[1]; i++) {
        if ((chain[i - table[1]] | 1) == (hash | 1) && strcmp(strings + symbols[i].st_name, name) == 0)
            return (char *)object->l_addr + symbols[i].st_value;
        if (chain[i - table[1]] & 1)
            break;
    }
    return NULL;
}

/* The newest version of a function that the table does not name, of the wanted flavour if it has two. */
static void *newest(const char *name, bool per_thread)
{
    char text[96];
    void *found = NULL;
    for (int version = 4; version >= 1 && !found; version--) {
        static const char *const flavours[] = {"_ptsz", "_ptds", ""};
        for (int i = per_thread ? 0 : 2; i < 3 && !found; i++) {
            if (version > 1)
                snprintf(text, sizeof text, "%s_v%d%s", name, version, flavours[i]);
            else
                snprintf(text, sizeof text, "%s%s", name, flavours[i]);
            found = exported(text);
        }
    }
    return found;
}

API CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status)
{
    int best = 0;
    bool known = false;
    *out = NULL;
    for (unsigned i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (strcmp(addresses[i].name, name) == 0 && (known = true) && addresses[i].since <= version && addresses[i].since > best) {
            best = addresses[i].since;
            *out = flags & 2 && addresses[i].per_thread ? addresses[i].per_thread : addresses[i].plain;
        }
    if (!known)
        *out = newest(name, flags & 2);
    if (status)
        *status = *out ? 0 : 1;
    return *out ? CUDA_SUCCESS : CUDA_NOT_FOUND;
}

API CUresult cuGetProcAddress(const char *name, void **out, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, out, version, flags, NULL);
}
