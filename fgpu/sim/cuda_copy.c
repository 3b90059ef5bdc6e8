/* The simulated driver's copies and fills, between any kinds of memory; they are made when they are asked for, since no
 * kernel here changes what they read. */
#include "cuda.h"

/* Where a range lies; NULL if it leaves the memory that it begins in. Other memory is the host's, and not known here. */
static unsigned char *reach(CUdeviceptr at, size_t bytes, bool known)
{
    pthread_mutex_lock(&big);
    struct block *block = block_around(at);
    bool inside = block ? bytes <= block->bytes - (at - block->address) : !known;
    if (block && inside)
        block->touched = true;
    pthread_mutex_unlock(&big);
    return inside ? (unsigned char *)(uintptr_t)at : NULL;
}

/* The first byte of one side of a copy, and how far its rows and layers are apart. */
static unsigned char *open_side(const struct side *side, const struct copy *copy, size_t *row, size_t *layer)
{
    CUdeviceptr base = side->type == MEMORY_TYPE_HOST ? (uintptr_t)side->host : side->device;
    size_t rows = side->height ? side->height : copy->height;
    *row = side->pitch ? side->pitch : copy->width;
    if (side->type == MEMORY_ARRAY) {
        pthread_mutex_lock(&big);
        const struct block *array = block_at(BLOCK_ARRAY, (uintptr_t)side->array);
        base = array ? array->address : 0;
        *row = array ? array->shape.width * element_size(array->shape.format, array->shape.channels) : 0;
        rows = array && array->shape.height ? array->shape.height : 1;
        pthread_mutex_unlock(&big);
    }
    *layer = *row * rows;
    size_t first = side->z * *layer + side->y * *row + side->x;
    size_t last = (copy->depth - 1) * *layer + (copy->height - 1) * *row + copy->width;
    return base ? reach(base + first, last, side->type == MEMORY_TYPE_DEVICE) : NULL;
}

static CUresult copy_now(const struct copy *copy)
{
    size_t from_row, from_layer, to_row, to_layer;
    if (!copy->width || !copy->height || !copy->depth)
        return CUDA_SUCCESS;
    const unsigned char *from = open_side(&copy->from, copy, &from_row, &from_layer);
    unsigned char *to = open_side(&copy->to, copy, &to_row, &to_layer);
    if (!from || !to)
        return CUDA_INVALID_VALUE;
    for (size_t z = 0; z < copy->depth; z++)
        for (size_t y = 0; y < copy->height; y++)
            memmove(to + z * to_layer + y * to_row, from + z * from_layer + y * from_row, copy->width);
    return CUDA_SUCCESS;
}

static CUresult fill_now(const struct fill *fill)
{
    if (fill->element != 1 && fill->element != 2 && fill->element != 4)
        return CUDA_INVALID_VALUE;
    if (!fill->width || !fill->height)
        return CUDA_SUCCESS;
    size_t bytes = fill->width * fill->element;
    unsigned char *to = fill->to % fill->element ? NULL : reach(fill->to, (fill->height - 1) * fill->pitch + bytes, true);
    for (size_t y = 0; to && y < fill->height; y++)
        for (size_t x = 0; x < bytes; x += fill->element)
            memcpy(to + y * fill->pitch + x, &fill->value, fill->element);
    return to ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

CUresult perform(const struct act *act)
{
    return act->type == NODE_COPY ? copy_now(&act->copy) : act->type == NODE_FILL ? fill_now(&act->fill) : CUDA_SUCCESS;
}

static CUresult copied(const struct copy *copy, struct stream *stream)
{
    NEED_CONTEXT;
    struct act act = {.type = NODE_COPY, .copy = *copy};
    return submit(stream, &act);
}

static CUresult line(struct side to, struct side from, size_t bytes, struct stream *stream)
{
    struct copy copy = {from, to, bytes, 1, 1};
    bool nothing = bytes && (!(from.host || from.device || from.array) || !(to.host || to.device || to.array));
    return nothing ? CUDA_INVALID_VALUE : copied(&copy, stream);
}

static struct side host(const void *p) { return (struct side){.type = MEMORY_TYPE_HOST, .host = (void *)(uintptr_t)p}; }
static struct side device(CUdeviceptr p) { return (struct side){.type = MEMORY_TYPE_DEVICE, .device = p}; }
static struct side unified(CUdeviceptr p) { return (struct side){.type = MEMORY_UNIFIED, .device = p}; }
static struct side array_at(CUarray a, size_t x) { return (struct side){.type = MEMORY_ARRAY, .array = a, .x = x}; }

#define LINE(name, to_type, to, from_type, from) \
    API CUresult name##_v2(to_type, from_type, size_t n) { return line(to, from, n, stream_of(NULL, false)); }
#define LINE_ASYNC(name, to_type, to, from_type, from) \
    API CUresult name##_v2(to_type, from_type, size_t n, CUstream s) { return line(to, from, n, stream_of(s, false)); } \
    API CUresult name##_v2_ptsz(to_type, from_type, size_t n, CUstream s) { return line(to, from, n, stream_of(s, true)); }
LINE(cuMemcpyHtoD, CUdeviceptr to, device(to), const void *from, host(from))
LINE(cuMemcpyDtoH, void *to, host(to), CUdeviceptr from, device(from))
LINE(cuMemcpyDtoD, CUdeviceptr to, device(to), CUdeviceptr from, device(from))
LINE_ASYNC(cuMemcpyHtoDAsync, CUdeviceptr to, device(to), const void *from, host(from))
LINE_ASYNC(cuMemcpyDtoHAsync, void *to, host(to), CUdeviceptr from, device(from))
LINE_ASYNC(cuMemcpyDtoDAsync, CUdeviceptr to, device(to), CUdeviceptr from, device(from))
API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) { return line(unified(to), unified(from), n, stream_of(NULL, false)); }
API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) { return line(unified(to), unified(from), n, stream_of(s, false)); }
API CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext a, CUdeviceptr from, CUcontext b, size_t n) { (void)a, (void)b; return cuMemcpyDtoD_v2(to, from, n); }
API CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext a, CUdeviceptr from, CUcontext b, size_t n, CUstream s) { (void)a, (void)b; return cuMemcpyDtoDAsync_v2(to, from, n, s); }

API CUresult cuMemcpyAtoH_v2(void *to, CUarray a, size_t x, size_t n) { return line(host(to), array_at(a, x), n, stream_of(NULL, false)); }
API CUresult cuMemcpyHtoA_v2(CUarray a, size_t x, const void *from, size_t n) { return line(array_at(a, x), host(from), n, stream_of(NULL, false)); }
API CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray a, size_t x, size_t n) { return line(device(to), array_at(a, x), n, stream_of(NULL, false)); }
API CUresult cuMemcpyDtoA_v2(CUarray a, size_t x, CUdeviceptr from, size_t n) { return line(array_at(a, x), device(from), n, stream_of(NULL, false)); }
API CUresult cuMemcpyAtoA_v2(CUarray a, size_t x, CUarray b, size_t y, size_t n) { return line(array_at(a, x), array_at(b, y), n, stream_of(NULL, false)); }

struct side2 { size_t x, y; int type; void *host; CUdeviceptr device; CUarray array; size_t pitch; };
struct copy2 { struct side2 from, to; size_t width, height; }; /* CUDA_MEMCPY2D */
_Static_assert(sizeof(struct copy) == 200 && sizeof(struct copy2) == 128 && sizeof(struct fill) == 40, "CUDA ABI");

static struct side widened(const struct side2 *s)
{
    return (struct side){.x = s->x, .y = s->y, .type = s->type, .host = s->host, .device = s->device, .array = s->array, .pitch = s->pitch};
}
static CUresult plane(const struct copy2 *c, CUstream s)
{
    struct copy copy = {widened(&c->from), widened(&c->to), c->width, c->height, 1};
    bool narrow = (c->from.pitch && c->from.pitch < c->width) || (c->to.pitch && c->to.pitch < c->width);
    return narrow ? CUDA_INVALID_VALUE : copied(&copy, stream_of(s, false));
}
API CUresult cuMemcpy2D_v2(const struct copy2 *c) { return plane(c, NULL); }
API CUresult cuMemcpy2DUnaligned_v2(const struct copy2 *c) { return plane(c, NULL); }
API CUresult cuMemcpy2DAsync_v2(const struct copy2 *c, CUstream s) { return plane(c, s); }
API CUresult cuMemcpy3D_v2(const struct copy *c) { return copied(c, stream_of(NULL, false)); }
API CUresult cuMemcpy3DAsync_v2(const struct copy *c, CUstream s) { return copied(c, stream_of(s, false)); }
API CUresult cuMemcpy3DPeer(const struct copy *c) { return copied(c, stream_of(NULL, false)); }
API CUresult cuMemcpy3DPeerAsync(const struct copy *c, CUstream s) { return copied(c, stream_of(s, false)); }

static CUresult filled(struct fill fill, struct stream *stream)
{
    NEED_CONTEXT;
    struct act act = {.type = NODE_FILL, .fill = fill};
    return submit(stream, &act);
}
#define FILL(bits, type) \
    API CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type v, size_t n) { return filled((struct fill){to, 0, v, bits / 8, n, 1}, stream_of(NULL, false)); } \
    API CUresult cuMemsetD##bits##Async(CUdeviceptr to, type v, size_t n, CUstream s) { return filled((struct fill){to, 0, v, bits / 8, n, 1}, stream_of(s, false)); } \
    API CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type v, size_t w, size_t h) { return filled((struct fill){to, pitch, v, bits / 8, w, h}, stream_of(NULL, false)); } \
    API CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type v, size_t w, size_t h, CUstream s) { return filled((struct fill){to, pitch, v, bits / 8, w, h}, stream_of(s, false)); }
FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned)
