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

enum { BAD_HANDLE = 400 };

struct context { int device, primary_refs; };
struct graph { uint64_t ns, bytes; int device, launched, lossy; };
struct stream { struct sim_ticket last; uint64_t ready; struct graph *capture; struct context *context; }; /* NULL: whichever is current */
struct event { struct sim_ticket ticket; uint64_t at; int device; };
struct pool { int device, host, imported; uint64_t reserved, used, keep; };
enum { POOL_CHUNK = 32 << 20, BLOCK_POINTER = 1, BLOCK_HANDLE, BLOCK_MAP, BLOCK_ARRAY, BLOCK_IPC };
struct block { /* what occupies memory; found by address or handle */
    struct block *next;
    uint64_t address, bytes;
    int device, kind, handles, maps, object; /* device -1: the host; object: by which others know it, plus one */
    struct pool *pool;
    struct block *owner; /* of a mapping: the memory behind it */
    struct context *context;
};

extern pthread_mutex_t big; /* guards everything of this process */
extern bool initialised;
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
