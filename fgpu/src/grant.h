/* What the arbiter of a host and the processes of a session tell each other. The arbiter writes the grant page, which
 * sessions have read-only; a process sends its state by a socket of the type SEQPACKET, whenever it changes. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum { GRANT_BYTES = 4096, GRANT_GPUS = 16, GRANT_VERSION = 1, STATE_VERSION = 1 };
#define GRANT_MAGIC 0x544e5247u
#define GRANT_BEAT_NS 50000000ull   /* how often the arbiter shows that it lives */
#define GRANT_STALE_NS 250000000ull /* and when it is taken for dead */
#define GRANT_PARKED UINT64_MAX     /* nobody else wants the GPU */

struct grant_page {
    _Atomic uint32_t magic;
    uint32_t version;
    _Atomic uint64_t beat;  /* CLOCK_MONOTONIC, ns */
    _Atomic uint64_t epoch; /* changes with every arbiter: connections to others are dead */
    struct {
        _Atomic uint64_t until; /* kernels that begin before may be launched; CLOCK_MONOTONIC, ns */
        _Atomic uint32_t word;  /* changes with `until`; the futex that waiting processes sleep on */
        uint32_t pad;
    } gpu[GRANT_GPUS];          /* by index into the limits file */
};
_Static_assert(sizeof(struct grant_page) <= GRANT_BYTES, "the page must fit its file");

enum { STATE_BUSY = 1, STATE_WANTS = 2 }; /* something may be in flight; launches wait, or more are to come */
struct grant_state { uint8_t version, gpu, flags, pad; };
