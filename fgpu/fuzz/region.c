/* The account of a session, into which others of its processes write whatever they like, between this process' calls and
 * in the middle of them: nothing crashes, and what this process holds by itself is never more than the limit. */
#include "../src/region.h"

#include "input.h"
#include "session.h"

static const int holders[] = {0, 1, HOST_MEMORY};
static struct region *shared, clean;
static struct input *rest;
static uint64_t held[HOLDERS];

static uint64_t limit_of(int gpu) {
    return gpu == HOST_MEMORY ? fgpu_limits.pinned_bytes : fgpu_limits.gpu[gpu].mem_bytes;
}

static void set_up(void) {
    shared = session_region("0.01");
    REQUIRE(fgpu_attach());
    clean = *shared;
}

/* Any field. The lock is written to between calls alone: what glibc has in there while it is held, it trusts. */
static void overwrite(bool with_lock) {
    static const struct { size_t at, size, count; } parts[] = {
        {offsetof(struct region, slot), sizeof(struct region_slot), REGION_SLOTS},
        {offsetof(struct region, gpu), sizeof(struct region_gpu), MAX_GPUS},
        {offsetof(struct region, share), sizeof(struct region_share), REGION_SHARES},
        {offsetof(struct region, high), 8, 1},
        {offsetof(struct region, magic), 8, 1},
        {offsetof(struct region, governed_at), 8, 1},
        {offsetof(struct region, lock), sizeof(pthread_mutex_t), 1},
    };
    unsigned part = choose(rest, with_lock ? 7 : 6);
    size_t at = parts[part].at + take(rest, 1) % parts[part].count * parts[part].size;
    uint64_t value = take_size(rest);
    memcpy((char *)shared + at + take(rest, 1) * 8 % parts[part].size / 8 * 8, &value, sizeof value);
}

static void meanwhile(void) {
    if (rest && choose(rest, 4) == 0)
        overwrite(false);
}

static void change(int gpu) {
    uint64_t to = take_size(rest), before = held[gpu];
    if (region_change(gpu, before, to)) return;
    REQUIRE(to <= before || to <= limit_of(gpu));
    held[gpu] = to;
}

static void open_shared(int gpu) {
    uint64_t id = 1 + choose(rest, 4), bytes = take_size(rest) >> 8;
    if (!region_share(id, gpu, bytes)) return;
    REQUIRE(bytes <= limit_of(gpu) && held[gpu] <= limit_of(gpu) - bytes);
    held[gpu] += bytes;
}

static void list(int gpu) {
    int room = (int)choose(rest, 64);
    nvmlProcessV2 *out = malloc((size_t)room * sizeof *out);
    REQUIRE(region_processes(gpu, out, room) <= REGION_SLOTS);
    free(out);
}

/* Whoever waits as long as it is told to may go. */
static void pass_gate(int gpu) {
    uint64_t wait = 0;
    if (!region_gate_wait(gpu, fuzz_clock, &wait) || !wait || wait > 1000000000000u) return;
    fuzz_clock += wait;
    rest = NULL;
    REQUIRE(!region_gate_wait(gpu, fuzz_clock, &wait) || !wait); /* or the account is garbled since */
}

static void step(int gpu) {
    struct input *in = rest;
    uint64_t used;
    switch (choose(in, 12)) {
    case 0: case 1: overwrite(true); break;
    case 2: change(gpu); break;
    case 3: region_publish(1 + choose(in, 4), gpu, take_size(in)); break;
    case 4: open_shared(gpu); break;
    case 5: region_unshare(1 + choose(in, 4)); break;
    case 6: region_used(gpu, &used); break;
    case 7: list(gpu); break;
    case 8: pass_gate(gpu ? 1 : 0); break;
    case 9: {
        uint64_t start = fuzz_clock - take(in, 4), end = start + take(in, 4);
        region_gate_busy(gpu ? 1 : 0, start, end, choose(in, 2));
        break;
    }
    case 10: REQUIRE(region_gate_percent(gpu ? 1 : 0, fuzz_clock) <= 100); break;
    case 11:
        fuzz_clock += take(in, 5);
        REQUIRE(region_governed_at(fuzz_clock) <= fuzz_clock);
    }
    rest = in;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {data, data + size};
    if (!shared)
        set_up();
    fuzz_clock += 10000000000u;
    *shared = clean;
    session_forget();
    memset(held, 0, sizeof held);
    rest = &in;
    fuzz_meanwhile = meanwhile;
    while (in.at < in.end) {
        if (choose(&in, 32) == 31) { /* a child of fork, which holds nothing */
            session_forget();
            memset(held, 0, sizeof held);
        }
        step(holders[choose(&in, 3)]);
    }
    rest = NULL;
    return 0;
}
