/* What a fuzz target reads its input by, and how it says that something does not hold. Past the end all is zero. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct input { const uint8_t *at, *end; };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #what); \
            abort(); \
        } \
    } while (0)

static inline uint64_t take(struct input *in, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes && in->at < in->end; i++)
        value |= (uint64_t)*in->at++ << 8 * i;
    return value;
}

static inline unsigned choose(struct input *in, unsigned count) { return (unsigned)take(in, 1) % count; }

/* A number of bytes: some blocks or chunks of pools, around a power of two, or whatever. */
static inline uint64_t take_size(struct input *in) {
    unsigned how = choose(in, 4), shift = choose(in, 64);
    uint64_t small = take(in, 1);
    return how == 0 ? small << 20 : how == 1 ? small << 21 : how == 2 ? (1ull << shift) + small - 128 : take(in, 8);
}
