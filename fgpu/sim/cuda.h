/* What the files of the simulated libcuda.so.1 share. */
#ifndef SIM_CUDA_H
#define SIM_CUDA_H

#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "state.h"

/* Zeroed memory of the simulation itself, which ends without. */
static inline void *zeroed(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        abort();
    return memory;
}

static inline void *grown(void *memory, size_t bytes)
{
    memory = realloc(memory, bytes);
    if (!memory)
        abort();
    return memory;
}

enum { BAD_HANDLE = 400, NOT_PERMITTED = 800 };
enum { MEMORY_ARRAY = 3, MEMORY_UNIFIED = 4 };
enum { NODE_KERNEL, NODE_COPY, NODE_FILL, NODE_HOST, NODE_EMPTY = 5, NODE_MEM_FREE = 11 };

struct context { int device, primary_refs; bool dead, is_green; unsigned flags; struct context *next; _Atomic unsigned sending; /* threads */ };
struct duty { _Atomic bool done; }; /* a function of the host in a stream; kept for ever, as events may ask */
struct command { struct sim_ticket ticket; uint64_t at; }; /* of a stream: done when the kernel is, and not before */
struct stream { /* context NULL: whichever is current */
    pthread_mutex_t lock; /* of what threads that use it at once change */
    struct sim_ticket last;
    uint64_t ready, commands;
    struct command *queue; /* the last QUEUE commands */
    struct graph *capture;
    struct context *context;
    struct duty *duty; /* the last one */
    bool ended;
    unsigned flags;
    int priority;
    struct stream *next; /* of those that capture */
};
struct event { struct sim_ticket ticket; uint64_t at; int device; unsigned flags; bool recorded; struct duty *duty; struct graph *capture; };

/* What a stream does besides kernels, or a node of a graph; laid out as CUDA_MEMCPY3D and CUDA_MEMSET_NODE_PARAMS are. */
struct side { size_t x, y, z, level; int type; void *host; CUdeviceptr device; CUarray array; void *context; size_t pitch, height; };
struct copy { struct side from, to; size_t width, height, depth; };
struct fill { CUdeviceptr to; size_t pitch; unsigned value, element; size_t width, height; };
struct host_call { void (*call)(void *); void *data; };
struct kernel_node { CUfunction function; unsigned shape[7]; void **params, **extra, *rest[2]; };
struct act { int type; union { struct copy copy; struct fill fill; struct host_call host; struct kernel_node kernel; CUallocNode alloc; CUdeviceptr free; }; };
struct node { struct act act; struct graph *graph, *child; struct node **after; size_t count; };
struct graph { uint64_t ns, bytes; int device, launched, lossy; bool invalid; struct node **nodes; size_t count; };
struct pool { int device, host, imported; unsigned no_reuse; uint64_t reserved, used, keep, reserved_high, used_high; };
enum { POOL_CHUNK = 32 << 20, BLOCK_POINTER = 1, BLOCK_HANDLE, BLOCK_MAP, BLOCK_ARRAY, BLOCK_IPC, BLOCK_HOST, BLOCK_REGISTERED, BLOCK_GLOBAL };
struct block { /* what occupies memory; found by address or handle */
    struct block *next;
    uint64_t address, bytes;
    int device, kind, handles, maps, object; /* device -1: the host; object: by which others know it, plus one */
    struct pool *pool;
    struct block *owner; /* of a mapping: the memory behind it */
    struct context *context;
    bool touched, managed, mapping; /* may have a content; managed; its content is a file's */
    unsigned flags, id;
    CUarray3DDesc shape;
    int advice[4]; /* of managed memory: read mostly; accessed by, a bit for each; preferred and last prefetched place, plus three */
};

extern pthread_mutex_t big; /* guards everything of this process */
extern bool initialised;
void need_driver(void); /* aborts if it has been taken down */
extern int visible[SIM_GPUS], visible_count; /* ordinal -> index into the configuration */
extern struct context primary[SIM_GPUS];
extern struct pool default_pool[SIM_GPUS], *current_pool[SIM_GPUS];
extern __thread struct context *current;

struct stream *stream_of(CUstream stream, bool per_thread);
int device_of(const struct stream *stream);
uint64_t take_addresses(uint64_t bytes);
struct block *block_at(int kind, uint64_t address);    /* the caller holds `big`, in these three */
struct block *block_around(uint64_t address);
struct block *add_block(int device, int kind, uint64_t bytes, uint64_t address);
CUresult release_block(int kind, uint64_t key);
void free_all_of(struct context *context);
void pools_synchronised(void);
size_t element_size(int format, unsigned channels);

CUresult submit(struct stream *stream, const struct act *act); /* do it, or record it */
CUresult perform(const struct act *act);
CUresult call_on_host(struct stream *stream, const struct host_call *call);
CUresult run(struct stream *stream, uint64_t ns);
void await_duty(const struct duty *duty);
void await_all_duties(void);
uint64_t kernel_ns(CUfunction function, void **params);
uint64_t kept_kernel_ns(CUfunction function); /* with what was set before; 0: no block was */
void destroy_graph(struct graph *graph);
struct node *add_node(struct graph *graph, const struct act *act, struct node *const *after, size_t count);

/* Where memory of a location lies: a device, -1 for the host. */
static inline int device_at(const CUlocation *where)
{
    return where->type == LOCATION_DEVICE ? where->id : where->type == LOCATION_LOCALITY_DOMAIN ? where->id & 0xff : -1;
}

#define API __attribute__((visibility("default")))
#define NEED_INIT \
    if (!initialised) \
    return CUDA_NOT_INITIALIZED
#define NEED_CONTEXT \
    NEED_INIT; \
    if (!current) \
    return CUDA_INVALID_CONTEXT
#define NEED_DEVICE(d) \
    NEED_INIT; \
    if ((d) < 0 || (d) >= visible_count) \
    return CUDA_INVALID_DEVICE

#endif
