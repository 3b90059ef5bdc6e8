/* Commands of the probe about memory that others hold, too, and memory that is not asked for by its size. */
#include <sys/syscall.h>

enum { POSIX_FD = 1 };

static void put_hex(const CUshareHandle *handle, char *out)
{
    for (unsigned i = 0; i < sizeof handle->bytes; i++)
        sprintf(out + 2 * i, "%02x", handle->bytes[i]);
}

static CUshareHandle from_hex(const char *text)
{
    CUshareHandle handle;
    for (unsigned i = 0, byte; i < sizeof handle.bytes && sscanf(text + 2 * i, "%2x", &byte) == 1; i++)
        handle.bytes[i] = (unsigned char)byte;
    return handle;
}

/* Take another process' descriptor, as by a message over a socket. */
static int adopt(int pid, int descriptor)
{
    int process = (int)syscall(434, pid, 0); /* pidfd_open */
    int own = (int)syscall(438, process, descriptor, 0); /* pidfd_getfd */
    close(process);
    return own;
}

/* By a handle of bytes: ipc and pool pointers. */
static CUresult by_name(const char *how, struct slot *s, const char *hex, char *shown)
{
    CUshareHandle handle = from_hex(hex);
    CUresult rc = -1;
    if (!strcmp(how, "ipc_get"))
        rc = CU(cuIpcGetMemHandle, (CUshareHandle *, CUdeviceptr), &handle, s->value);
    else if (!strcmp(how, "ipc_open"))
        return CU(cuIpcOpenMemHandle_v2, (CUdeviceptr *, CUshareHandle, unsigned), (CUdeviceptr *)&s->value, handle, 1);
    else if (!strcmp(how, "ipc_close"))
        return CU(cuIpcCloseMemHandle, (CUdeviceptr), s->value);
    else if (!strcmp(how, "pool_get"))
        rc = CU(cuMemPoolExportPointer, (CUshareHandle *, CUdeviceptr), &handle, s->value);
    else if (!strcmp(how, "pool_open"))
        return CU(cuMemPoolImportPointer, (CUdeviceptr *, CUmemPool, CUshareHandle *), (CUdeviceptr *)&s->value, pool, &handle);
    else if (!strcmp(how, "fabric_get"))
        rc = CU(cuMemExportToShareableHandle, (void *, CUmemHandle, int, unsigned long long), &handle, s->value, 8, 0);
    else if (!strcmp(how, "fabric_open"))
        return CU(cuMemImportFromShareableHandle, (CUmemHandle *, void *, int), (CUmemHandle *)&s->value, &handle, 8);
    if (!rc)
        put_hex(&handle, shown);
    return rc;
}

static CUresult by_descriptor(const char *how, struct slot *s, int descriptor, unsigned long long bytes)
{
    CUexternal memory;
    CUresult rc;
    if (!strcmp(how, "vmm"))
        return CU(cuMemImportFromShareableHandle, (CUmemHandle *, void *, int), (CUmemHandle *)&s->value, (void *)(uintptr_t)descriptor, POSIX_FD);
    if (!strcmp(how, "pool"))
        return CU(cuMemPoolImportFromShareableHandle, (CUmemPool *, void *, int, unsigned long long), &pool, (void *)(uintptr_t)descriptor, POSIX_FD, 0);
    if (!strcmp(how, "destroy"))
        return CU(cuDestroyExternalMemory, (CUexternal), (CUexternal)(uintptr_t)s->size);
    CUexternalDesc desc = {.type = 1, .handle = {.fd = descriptor}, .bytes = bytes};
    rc = CU(cuImportExternalMemory, (CUexternal *, const CUexternalDesc *), &memory, &desc);
    s->size = (uintptr_t)memory;
    return rc ? rc : CU(cuExternalMemoryGetMappedBuffer, (CUdeviceptr *, CUexternal, const void *), (CUdeviceptr *)&s->value, memory, NULL);
}

/* Graphs within graphs. */
static CUresult graphs(const char *how, struct slot *s, struct slot *inner)
{
    CUgraphNode node;
    CUnodeParams params = {.type = NODE_CHILD_GRAPH, .child = {inner->graph, !strcmp(how, "moved")}};
    CUresult rc = s->graph || !strcmp(how, "cloned") ? CUDA_SUCCESS : CU(cuGraphCreate, (CUgraph *, unsigned), &s->graph, 0);
    if (rc)
        return rc;
    if (!strcmp(how, "cloned"))
        return CU(cuGraphClone, (CUgraph *, CUgraph), &s->graph, inner->graph);
    if (!strcmp(how, "child"))
        return CU(cuGraphAddChildGraphNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph), &node, s->graph, NULL, 0, inner->graph);
    rc = CU(cuGraphAddNode_v3, (CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t, CUnodeParams *), &node, s->graph, NULL, NULL, 0, &params);
    inner->graph = rc || strcmp(how, "moved") ? inner->graph : NULL;
    return rc;
}

static CUresult make_pool(const char *how, int type, int place)
{
    CUlocation where = {place, 0};
    CUpoolProps props = {.type = type, .location = where};
    if (!strcmp(how, "new"))
        return CU(cuMemPoolCreate, (CUmemPool *, const CUpoolProps *), &pool, &props);
    return CU(cuMemGetDefaultMemPool, (CUmemPool *, CUlocation *, int), &pool, &where, type);
}

static bool memory_verb(const char *verb, const char *line, char *out, size_t room)
{
    char how[24] = "", hex[160] = "", shown[160] = "";
    int n = 0, a = 0, b = 0, fd = -1;
    unsigned long long bytes = 0;
    CUarray3DDesc d = {0};
    CUresult rc;
    if (sscanf(line, "name %23s %d %159s", how, &n, hex) >= 2)
        rc = by_name(how, &slots[n], hex, shown);
    else if (sscanf(line, "import %23s %d %d %llu", how, &n, &fd, &bytes) >= 3)
        rc = by_descriptor(how, &slots[n], fd, bytes);
    else if (sscanf(line, "export vmm %d", &n) == 1) {
        rc = CU(cuMemExportToShareableHandle, (void *, CUmemHandle, int, unsigned long long), &fd, slots[n].value, POSIX_FD, 0);
        sprintf(shown, "%d", fd);
    } else if (!strcmp(verb, "export")) {
        rc = CU(cuMemPoolExportToShareableHandle, (void *, CUmemPool, int, unsigned long long), &fd, pool, POSIX_FD, 0);
        sprintf(shown, "%d", fd);
    } else if (sscanf(line, "adopt %d %d", &a, &b) == 2)
        rc = adopt(a, b);
    else if (sscanf(line, "graphs %23s %d %d", how, &n, &a) == 3)
        rc = graphs(how, &slots[n], &slots[a]);
    else if (sscanf(line, "makepool %23s %d %d", how, &a, &b) == 3)
        rc = make_pool(how, a, b);
    else if (sscanf(line, "texture %d %u %zu %zu %zu %d %u %u", &n, (unsigned *)&a, &d.width, &d.height, &d.depth, &d.format, &d.channels, &d.flags) == 8) {
        strcpy(slots[n].how, "array_mipmap");
        rc = CU(cuMipmappedArrayCreate, (CUmipmap *, const CUarray3DDesc *, unsigned), (CUmipmap *)&slots[n].value, &d, (unsigned)a);
    } else if (sscanf(line, "sparse %d %d", &a, &b) == 2) {
        CUarrayMap map = {.resource = (void *)(uintptr_t)slots[a].value, .operation = OPERATION_MAP, .handle = slots[b].value};
        rc = CU(cuMemMapArrayAsync, (CUarrayMap *, unsigned, CUstream), &map, 1, NULL);
    } else if (sscanf(line, "limit %d %llu", &a, &bytes) == 2)
        rc = CU(cuCtxSetLimit, (int, size_t), a, bytes);
    else if (sscanf(line, "attribute %d", &a) == 1) {
        rc = CU(cuDeviceGetAttribute, (int *, int, CUdevice), &b, a, 0);
        sprintf(shown, "%d", b);
    } else if (!strcmp(verb, "cig"))
        rc = CU(cuStreamBeginCaptureToCig, (CUstream, void *), stream, NULL);
    else
        return false;
    snprintf(out, room, "%d %s", rc, shown);
    return true;
}
