/* Page-locked host memory: charged against the session's RAM, since what the driver allocates need not be charged to
 * the container's cgroup. Memory of the program's own that is registered is in its cgroup already, and counts all the
 * same: no more can be page-locked than the session has RAM. */
#include "fgpu.h"

static CUresult claim(uint64_t bytes, struct hold **hold) {
    CUresult rc = fgpu_ready();
    return rc ? rc : hold_new(fgpu_host(), bytes, NULL, hold);
}

#define PIN(name, address, params, args) \
    WRAP(name, params) { \
        struct hold *hold; \
        CUresult rc = claim(bytes, &hold); \
        if (rc) return rc; \
        rc = CALL(name, args); \
        return hold_settle(rc, hold, HELD_PINNED, rc ? 0 : KEY(address)); \
    }
PIN(cuMemAllocHost_v2, *out, (void **out, size_t bytes), (out, bytes))
PIN(cuMemHostAlloc, *out, (void **out, size_t bytes, unsigned flags), (out, bytes, flags))
PIN(cuMemHostRegister, memory, (void *memory, size_t bytes, unsigned flags), (memory, bytes, flags))
PIN(cuMemHostRegister_v2, memory, (void *memory, size_t bytes, unsigned flags), (memory, bytes, flags))

#define UNPIN(name) \
    WRAP(name, (void *memory)) { \
        CUresult rc = CALL(name, (memory)); \
        if (!rc) \
            ledger_drop(HELD_PINNED, KEY(memory), NULL); \
        return rc; \
    }
UNPIN(cuMemFreeHost)
UNPIN(cuMemHostUnregister)
