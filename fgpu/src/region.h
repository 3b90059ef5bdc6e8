/* The layout of the accounting file: one per session, mapped by all of its processes, made by the host, 64 KiB. */
#pragma once

#include "fgpu.h"

enum { REGION_BYTES = 65536, REGION_SLOTS = 256, REGION_SPANS = 32, REGION_SHARES = 192, REGION_VERSION = 3 };
#define REGION_MAGIC 0x55504766u
#define REGION_LOCK_BASE (1 << 20) /* one lockable byte per slot, past the end of the file */

struct region_gpu {
    uint64_t frame;                             /* the gate: last frame whose share was paid in */
    int64_t budget_ns;                          /* GPU time left in it; negative is debt */
    struct { uint64_t start, end; } span[REGION_SPANS]; /* when the GPU was last seen busy for us: sorted, disjoint */
    uint32_t spans, pad;
    uint64_t second[4], busy_ns[4];             /* busy time of the last seconds, for the utilisation view */
};
struct region_slot {
    int32_t pid, pad;
    uint64_t started, stack; /* fields 22 and 28 of /proc/<pid>/stat: tell a reused pid and an exec apart */
    uint64_t used[HOLDERS];
};
struct region_share { /* memory that several processes hold, each of them with its bytes in its slot */
    uint64_t id, bytes; /* id 0: free */
    uint64_t holders[REGION_SLOTS / 64]; /* a bit for each slot */
    int32_t gpu, pad;
};
struct region {
    uint32_t magic, version;
    char note[120]; /* why the last process was refused */
    pthread_mutex_t lock;
    uint32_t high, pad; /* slots ever used */
    struct region_gpu gpu[MAX_GPUS];
    struct region_slot slot[REGION_SLOTS];
    struct region_share share[REGION_SHARES];
    _Atomic uint64_t governed_at; /* when the arbiter last was in touch with a process of the session */
};
_Static_assert(sizeof(struct region) <= REGION_BYTES, "the region must fit its file");
