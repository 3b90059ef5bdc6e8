/* The simulated driver's page-locked memory, what it says of pointers and ranges, and functions of the host in streams. */
#include "cuda.h"

enum { DEVICE_CPU = -1, DEVICE_INVALID = -2, NOT_SAID = 3, ALREADY_REGISTERED = 712, NOT_REGISTERED = 713 };

static struct block *host_block(const void *memory)
{
    struct block *block = block_around((uintptr_t)memory);
    return block && (block->kind == BLOCK_HOST || block->kind == BLOCK_REGISTERED) ? block : NULL;
}

static CUresult note_host(int kind, void *memory, size_t n, unsigned flags)
{
    pthread_mutex_lock(&big);
    const struct block *there = kind == BLOCK_REGISTERED ? host_block(memory) : NULL;
    if (!there) {
        struct block *block = add_block(-1, kind, n, (uintptr_t)memory);
        block->flags = flags;
    }
    pthread_mutex_unlock(&big);
    return there ? ALREADY_REGISTERED : CUDA_SUCCESS;
}

API CUresult cuMemHostAlloc(void **out, size_t n, unsigned flags)
{
    NEED_CONTEXT;
    if (flags & ~7u || !n || !out)
        return CUDA_INVALID_VALUE;
    *out = aligned_alloc(4096, (n + 4095) & ~(size_t)4095);
    return *out ? note_host(BLOCK_HOST, *out, n, flags) : CUDA_OUT_OF_MEMORY;
}
API CUresult cuMemAllocHost_v2(void **out, size_t n) { return cuMemHostAlloc(out, n, 0); }
API CUresult cuMemFreeHost(void *memory)
{
    NEED_CONTEXT;
    CUresult rc = release_block(BLOCK_HOST, (uintptr_t)memory);
    if (!rc)
        free(memory);
    return rc;
}
API CUresult cuMemHostRegister_v2(void *memory, size_t n, unsigned flags)
{
    NEED_CONTEXT;
    return memory && n ? note_host(BLOCK_REGISTERED, memory, n, flags) : CUDA_INVALID_VALUE;
}
API CUresult cuMemHostRegister(void *memory, size_t n, unsigned flags) { return cuMemHostRegister_v2(memory, n, flags); }
API CUresult cuMemHostUnregister(void *memory)
{
    NEED_CONTEXT;
    pthread_mutex_lock(&big);
    const struct block *block = host_block(memory);
    bool within = block && block->address != (uintptr_t)memory;
    pthread_mutex_unlock(&big);
    return within ? CUDA_INVALID_VALUE : release_block(BLOCK_REGISTERED, (uintptr_t)memory) ? NOT_REGISTERED : CUDA_SUCCESS;
}

API CUresult cuMemHostGetFlags(unsigned *out, void *memory)
{
    NEED_CONTEXT;
    pthread_mutex_lock(&big);
    const struct block *block = host_block(memory);
    *out = block ? block->flags | 2 : 0; /* all is mapped where addresses are unified */
    pthread_mutex_unlock(&big);
    return block ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}
API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *memory, unsigned flags)
{
    NEED_CONTEXT;
    pthread_mutex_lock(&big);
    const struct block *block = block_around((uintptr_t)memory);
    bool on_host = block && block->device < 0 && !flags;
    pthread_mutex_unlock(&big);
    *out = on_host ? (uintptr_t)memory : 0;
    return on_host ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

/* Pointers. `bytes`: how much the attribute takes. */
static int type_of(const struct block *block)
{
    return block->kind == BLOCK_HOST || block->kind == BLOCK_REGISTERED || (block->pool && block->pool->host) ? MEMORY_TYPE_HOST
                                                                                                             : MEMORY_TYPE_DEVICE;
}

static uint64_t attribute_of(const struct block *block, int which, CUdeviceptr p, size_t *bytes)
{
    bool host = type_of(block) == MEMORY_TYPE_HOST;
    *bytes = 8;
    switch (which) {
    case 1: return (uintptr_t)block->context;
    case 3: return p;
    case 4: return host || block->managed ? p : 0;
    case 11: case 19: return block->address;
    case POINTER_RANGE_SIZE: case 18: return block->bytes;
    case 14: return 0;
    case 17: return (uintptr_t)block->pool;
    case 7: case 20: return block->id;
    }
    *bytes = 4;
    switch (which) {
    case POINTER_MEMORY_TYPE: return (unsigned)type_of(block);
    case 9: return (unsigned)(block->device < 0 ? block->context ? block->context->device : 0 : block->device);
    case 16: return 3;
    }
    *bytes = which == 6 || which == 8 || which == 10 || which == 13 || which == 15 ? 1 : 0;
    switch (which) {
    case 8: return block->managed;
    case 10: return block->kind == BLOCK_POINTER && !block->pool && !block->managed;
    case 13: return 1;
    }
    return block->flags >> 31 && which == 6; /* sync memory operations, as set */
}

static CUresult pointer_attribute(void *out, int which, CUdeviceptr p, bool lenient)
{
    size_t bytes = 0;
    struct block none = {.device = DEVICE_INVALID};
    pthread_mutex_lock(&big);
    const struct block *block = block_around(p);
    uint64_t value = attribute_of(block ? block : &none, which, p, &bytes);
    bool good = bytes && ((block && !(which == 4 && !value)) || (lenient && (value = which == 9 ? (unsigned)DEVICE_INVALID : 0, true)));
    if (good)
        memcpy(out, &value, bytes);
    pthread_mutex_unlock(&big);
    return good ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

API CUresult cuPointerGetAttribute(void *out, int which, CUdeviceptr p) { NEED_CONTEXT; return pointer_attribute(out, which, p, false); }
API CUresult cuPointerGetAttributes(unsigned n, int *which, void **out, CUdeviceptr p)
{
    NEED_CONTEXT;
    CUresult rc = CUDA_SUCCESS;
    for (unsigned i = 0; i < n && !rc; i++)
        rc = pointer_attribute(out[i], which[i], p, true);
    return rc;
}
API CUresult cuPointerSetAttribute(const void *value, int which, CUdeviceptr p)
{
    NEED_CONTEXT;
    pthread_mutex_lock(&big);
    struct block *block = which == 6 ? block_around(p) : NULL;
    if (block)
        block->flags = (block->flags & ~(1u << 31)) | (*(const unsigned *)value ? 1u << 31 : 0);
    pthread_mutex_unlock(&big);
    return block ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

/* Managed memory: advice is kept, and said again. */
enum { READ_MOSTLY, ACCESSED_BY, PREFERRED, PREFETCHED };
static CUresult advise(CUdeviceptr p, size_t n, int which, bool on, int value)
{
    NEED_INIT;
    pthread_mutex_lock(&big);
    struct block *block = block_around(p);
    bool there = which == READ_MOSTLY || (value >= DEVICE_CPU && value < visible_count);
    bool good = there && block && block->managed && n <= block->bytes - (p - block->address);
    if (good && which == ACCESSED_BY)
        block->advice[which] = on ? block->advice[which] | 1 << (value + 1) : block->advice[which] & ~(1 << (value + 1));
    else if (good)
        block->advice[which] = which == READ_MOSTLY ? on : on ? value + NOT_SAID : 0;
    pthread_mutex_unlock(&big);
    return good ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

API CUresult cuMemAdvise(CUdeviceptr p, size_t n, int advice, CUdevice d)
{
    static const int which[] = {-1, READ_MOSTLY, READ_MOSTLY, PREFERRED, PREFERRED, ACCESSED_BY, ACCESSED_BY};
    if (advice < 1 || advice > 6)
        return CUDA_INVALID_VALUE;
    return advise(p, n, which[advice], advice % 2, d);
}
static int place(CUlocation where) { return where.type == LOCATION_DEVICE ? where.id : DEVICE_CPU; }
API CUresult cuMemAdvise_v2(CUdeviceptr p, size_t n, int advice, CUlocation where) { return cuMemAdvise(p, n, advice, place(where)); }
API CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t n, CUdevice d, CUstream s) { (void)s; return advise(p, n, PREFETCHED, true, d); }
API CUresult cuMemPrefetchAsync_v2(CUdeviceptr p, size_t n, CUlocation where, unsigned flags, CUstream s)
{
    return flags ? CUDA_INVALID_VALUE : cuMemPrefetchAsync(p, n, place(where), s);
}

API CUresult cuMemRangeGetAttribute(void *out, size_t room, int which, CUdeviceptr p, size_t n)
{
    NEED_INIT;
    pthread_mutex_lock(&big);
    const struct block *block = block_around(p);
    bool good = block && block->managed && n <= block->bytes - (p - block->address) && which >= 1 && which <= 4 && room >= 4 && room % 4 == 0;
    if (good) {
        static const int at[] = {0, READ_MOSTLY, PREFERRED, ACCESSED_BY, PREFETCHED};
        int value = block->advice[at[which]];
        *(int *)out = which == 1 || which == 3 ? value : value ? value - NOT_SAID : DEVICE_INVALID;
        for (size_t i = 0, d = 0; which == 3 && i < room / 4; d++) /* GPUs first, then the host */
            if (d > (size_t)visible_count || value & 1 << (d == (size_t)visible_count ? 0 : d + 1))
                ((int *)out)[i++] = d < (size_t)visible_count ? (int)d : d == (size_t)visible_count ? DEVICE_CPU : DEVICE_INVALID;
    }
    pthread_mutex_unlock(&big);
    return good ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}
API CUresult cuMemRangeGetAttributes(void **out, size_t *rooms, int *which, size_t count, CUdeviceptr p, size_t n)
{
    CUresult rc = CUDA_SUCCESS;
    for (size_t i = 0; i < count && !rc; i++)
        rc = cuMemRangeGetAttribute(out[i], rooms[i], which[i], p, n);
    return rc;
}
API CUresult cuStreamAttachMemAsync(CUstream s, CUdeviceptr p, size_t n, unsigned flags)
{
    NEED_CONTEXT;
    (void)s, (void)n;
    pthread_mutex_lock(&big);
    struct block *block = block_around(p);
    bool managed = block && block->managed && flags && flags <= 4;
    pthread_mutex_unlock(&big);
    return managed ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

/* Functions of the host, in the order of their stream. */
struct callback { struct host_call call; struct duty *mine, *before; struct sim_ticket after; };
static pthread_mutex_t duties = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some_done = PTHREAD_COND_INITIALIZER;

void await_duty(const struct duty *duty)
{
    pthread_mutex_lock(&duties);
    while (duty && !duty->done)
        pthread_cond_wait(&some_done, &duties);
    pthread_mutex_unlock(&duties);
}

static unsigned outstanding; /* of all streams */
void await_all_duties(void)
{
    pthread_mutex_lock(&duties);
    while (outstanding)
        pthread_cond_wait(&some_done, &duties);
    pthread_mutex_unlock(&duties);
}

static void *carry_out(void *argument)
{
    struct callback *callback = argument;
    await_duty(callback->before);
    sim_wait_for(callback->after);
    callback->call.call(callback->call.data);
    pthread_mutex_lock(&duties);
    callback->mine->done = true;
    outstanding--;
    pthread_cond_broadcast(&some_done);
    pthread_mutex_unlock(&duties);
    free(callback);
    return NULL;
}

CUresult call_on_host(struct stream *stream, const struct host_call *call)
{
    pthread_t thread;
    struct callback *callback = zeroed(sizeof *callback);
    *callback = (struct callback){*call, zeroed(sizeof(struct duty)), stream->duty, stream->last};
    stream->duty = callback->mine;
    pthread_mutex_lock(&duties);
    outstanding++;
    pthread_mutex_unlock(&duties);
    if (pthread_create(&thread, NULL, carry_out, callback))
        abort();
    pthread_detach(thread);
    return CUDA_SUCCESS;
}

API CUresult cuLaunchHostFunc(CUstream s, void (*call)(void *), void *data)
{
    NEED_CONTEXT;
    struct act act = {.type = NODE_HOST, .host = {call, data}};
    return call ? submit(stream_of(s, false), &act) : CUDA_INVALID_VALUE;
}

struct noted { void (*call)(CUstream, CUresult, void *); CUstream stream; void *data; };
static void tell(void *data)
{
    struct noted *noted = data;
    noted->call(noted->stream, CUDA_SUCCESS, noted->data);
    free(noted);
}
API CUresult cuStreamAddCallback(CUstream s, void (*call)(CUstream, CUresult, void *), void *data, unsigned flags)
{
    NEED_CONTEXT;
    struct stream *stream = stream_of(s, false);
    if (!call || flags)
        return CUDA_INVALID_VALUE;
    if (stream->capture)
        return 900;
    struct noted *noted = zeroed(sizeof *noted);
    *noted = (struct noted){call, s, data};
    return call_on_host(stream, &(struct host_call){tell, noted});
}
