/* Memory accounting of the container, in a file shared by its processes. A charge is made under the lock before the
 * driver is asked, so two processes can never both take the last bytes; a process that dies gives back what it held. */
#include "region.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_SECONDS = 10, FRAME_NS = 100000000 };
#define DEBT_NS 1000000000000000 /* eleven days: nobody owes more */
#define FIVE " %*s %*s %*s %*s %*s"

static struct region *region;
static int region_fd = -1, lock_kind;
PER_PROCESS static struct region_slot *mine; /* NULL until this process joins */
PER_PROCESS static struct region_slot own;   /* what `mine` must say; the file may be tampered with, this cannot */

/* Hold the region's lock until the end of the block; `locked` says whether it could be had and the region is sound. */
#define LOCKED_REGION bool locked __attribute__((cleanup(unlock))) = lock(true)

static const char *prepare(struct region *r) {
    pthread_mutexattr_t attr;
    pthread_mutex_t like;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&like, &attr);
    lock_kind = like.__data.__kind;
    if (r->magic == REGION_MAGIC) return r->version == REGION_VERSION ? NULL : "region has another version";
    if (r->magic || r->version) return "region is garbled";
    pthread_mutex_init(&r->lock, &attr);
    r->version = REGION_VERSION;
    r->magic = REGION_MAGIC;
    return NULL;
}

/* Once per process, so what is open when something is wrong stays open: the process gets no GPU anyway. */
const char *region_attach(const char *path) {
    struct stat info;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return "region missing";
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 200); /* out of the way of programs that count on low numbers */
    if (high >= 0)
        close(fd);
    region_fd = high >= 0 ? high : fd;
    if (fstat(region_fd, &info) || !S_ISREG(info.st_mode) || info.st_size != REGION_BYTES)
        return "region has the wrong size";
    struct region *map = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, region_fd, 0);
    const char *problem = map == MAP_FAILED || flock(region_fd, LOCK_EX) ? "region cannot be mapped" : prepare(map);
    flock(region_fd, LOCK_UN);
    if (!problem)
        region = map;
    return problem;
}

void region_note(const char *text) {
    if (region)
        snprintf(region->note, sizeof region->note, "pid %d: %s", (int)getpid(), text);
}

/* By the monotonic clock, which nobody sets. In glibc since 2.30; before that the lock is tried again and again. */
#ifdef __SANITIZE_THREAD__ /* does not know it */
#define CLOCKLOCK ((int (*)(pthread_mutex_t *, clockid_t, const struct timespec *))NULL)
#else
extern int pthread_mutex_clocklock(pthread_mutex_t *, clockid_t, const struct timespec *) __attribute__((weak));
#define CLOCKLOCK pthread_mutex_clocklock
#endif

static int wait_for_lock(void) {
    struct timespec until, nap = {0, 1000000};
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LOCK_SECONDS;
    if (CLOCKLOCK) return CLOCKLOCK(&region->lock, CLOCK_MONOTONIC, &until);
    for (;;) {
        struct timespec now;
        int rc = pthread_mutex_trylock(&region->lock);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (rc != EBUSY || now.tv_sec > until.tv_sec) return rc;
        nanosleep(&nap, NULL);
    }
}

/* Written over with another kind, the lock would be taken by other rules, by instructions that are not everywhere. */
static bool lock(bool patiently) {
    bool good = region && region->lock.__data.__kind == lock_kind;
    int rc = good ? pthread_mutex_trylock(&region->lock) : EINVAL;
    if (rc == EBUSY && patiently)
        rc = wait_for_lock();
    if (rc == EOWNERDEAD) { /* its holder was killed in here: only the spans can be half written */
        for (int i = 0; i < MAX_GPUS; i++)
            region->gpu[i].spans = 0;
        rc = pthread_mutex_consistent(&region->lock);
    }
    if (rc) return false;
    if (region->magic == REGION_MAGIC && region->version == REGION_VERSION && region->high <= REGION_SLOTS)
        return true;
    pthread_mutex_unlock(&region->lock);
    return false;
}

static void unlock(const bool *locked) {
    if (*locked)
        pthread_mutex_unlock(&region->lock);
}

/* Read start time and stack address of a process; false when it is gone. */
static bool identify(int pid, uint64_t *started, uint64_t *stack) {
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    close(fd);
    text[size > 0 ? size : 0] = 0;
    static const char from_3_to_28[] = FIVE FIVE FIVE " %*s %*s %*s %*s %" SCNu64 FIVE " %" SCNu64;
    const char *name_end = strrchr(text, ')'); /* of field 2, which may hold anything */
    return name_end && sscanf(name_end + 1, from_3_to_28, started, stack) == 2;
}

static struct flock lock_byte(const struct region_slot *slot) {
    off_t offset = REGION_LOCK_BASE + (slot - region->slot);
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = offset, .l_len = 1};
}

/* A slot lives while its process holds the slot's lock byte (works across pid namespaces, ends with exec). Should the
 * program have closed the file behind our back, the process itself is looked at. */
static bool alive(const struct region_slot *slot) {
    struct flock probe = lock_byte(slot);
    uint64_t started, stack;
    if (fcntl(region_fd, F_GETLK, &probe) == 0 && probe.l_type != F_UNLCK) return true;
    if (!identify(slot->pid, &started, &stack)) return kill(slot->pid, 0) == 0 || errno != ESRCH;
    return started == slot->started && (!stack || !slot->stack || stack == slot->stack);
}

#define EACH_SHARE(s) (struct region_share *s = region->share; s < region->share + REGION_SHARES; s++)

static uint64_t bit_of(const struct region_slot *slot) { return 1ull << ((slot - region->slot) % 64); }

static uint64_t *word_of(struct region_share *share, const struct region_slot *slot) {
    return &share->holders[(slot - region->slot) / 64];
}

static unsigned holders_of(const struct region_share *share) {
    unsigned count = 0;
    for (unsigned i = 0; i < sizeof share->holders / sizeof *share->holders; i++)
        count += (unsigned)__builtin_popcountll(share->holders[i]);
    return count;
}

static void leave(struct region_share *share, const struct region_slot *slot) {
    *word_of(share, slot) &= ~bit_of(slot);
    if (!holders_of(share))
        memset(share, 0, sizeof *share);
}

/* Read once: others may write there meanwhile, here and wherever a number of the region bounds a loop or an index. */
static uint32_t slots_used(void) {
    return (uint32_t)least(__atomic_load_n(&region->high, __ATOMIC_RELAXED), REGION_SLOTS);
}

static void reap(void) {
    for (uint32_t i = 0; i < slots_used(); i++) {
        struct region_slot *slot = &region->slot[i];
        if (!slot->pid || slot == mine || alive(slot))
            continue;
        for EACH_SHARE(share)
            leave(share, slot);
        memset(slot, 0, sizeof *slot);
    }
}

static struct region_slot *free_slot(void) {
    for (uint32_t i = 0; i < REGION_SLOTS; i++) {
        if (region->slot[i].pid)
            continue;
        region->high = (uint32_t)most(slots_used(), i + 1);
        return &region->slot[i];
    }
    return NULL;
}

/* Take a slot for this process, once, with its lock byte. The caller holds the lock. */
static bool take_slot(void) {
    own.pid = getpid();
    if (!identify(own.pid, &own.started, &own.stack))
        own.started = own.stack = 0;
    mine = free_slot();
    if (!mine) {
        reap();
        mine = free_slot();
    }
    if (!mine) return false;
    struct flock hold = lock_byte(mine);
    fcntl(region_fd, F_SETLK, &hold);
    *mine = own;
    return true;
}

bool region_join(void) {
    LOCKED_REGION;
    return locked && (mine || take_slot());
}

/* What several processes hold is counted once. */
static uint64_t counted_twice(int gpu) {
    uint64_t sum = 0;
    for EACH_SHARE(share) {
        unsigned holders = share->id && share->gpu == gpu ? holders_of(share) : 0;
        sum += holders > 1 ? share->bytes * (holders - 1) : 0;
    }
    return sum;
}

static uint64_t total(int gpu) {
    uint64_t sum = 0, twice = counted_twice(gpu);
    for (uint32_t i = 0; i < slots_used(); i++) {
        uint64_t used = region->slot[i].pid ? region->slot[i].used[gpu] : 0;
        sum = used > UINT64_MAX - sum ? UINT64_MAX : sum + used;
    }
    return sum - least(sum, twice);
}

static bool is_within(int gpu, uint64_t used, uint64_t bytes) {
    uint64_t limit = gpu == HOST_MEMORY ? fgpu_limits.pinned_bytes : fgpu_limits.gpu[gpu].mem_bytes;
    return used <= limit && bytes <= limit - used;
}

/* Whatever is written there, this process has no more by itself. */
static bool fits(int gpu, uint64_t bytes) { return is_within(gpu, most(total(gpu), own.used[gpu]), bytes); }

CUresult region_change(int gpu, uint64_t from, uint64_t to) {
    if (gpu < 0 || from == to) return CUDA_SUCCESS;
    LOCKED_REGION;
    if (!locked || (!mine && !take_slot())) return CUDA_SYSTEM_NOT_READY;
    *mine = own; /* heals whatever somebody wrote there */
    if (to > from)
        limits_poll();
    if (to > from && !fits(gpu, to - from)) {
        reap();
        limits_refresh(); /* a greater share counts at once */
        if (!fits(gpu, to - from)) return CUDA_OUT_OF_MEMORY;
    }
    mine->used[gpu] = own.used[gpu] += to - from;
    return CUDA_SUCCESS;
}

static struct region_share *share_of(uint64_t id) {
    for EACH_SHARE(share)
        if (share->id == id) return share;
    return NULL;
}

/* Where there is no room for it, others pay for it once more. */
void region_publish(uint64_t id, int gpu, uint64_t bytes) {
    LOCKED_REGION;
    if (!locked || !mine) return;
    struct region_share *share = share_of(id) ? NULL : share_of(0);
    if (!share) return;
    *share = (struct region_share){.id = id, .bytes = bytes, .gpu = gpu};
    *word_of(share, mine) |= bit_of(mine);
}

/* Held in full by this process: what the region says of it spares the session, and not its limit for each process. */
bool region_share(uint64_t id, int gpu, uint64_t bytes) {
    LOCKED_REGION;
    if (!locked || gpu < 0 || (!mine && !take_slot())) return false;
    reap(); /* what nobody lives to hold is nobody's */
    struct region_share *share = share_of(id);
    if (!share || share->gpu != gpu || share->bytes > bytes || *word_of(share, mine) & bit_of(mine)) return false;
    if (!is_within(gpu, own.used[gpu], bytes)) return false;
    *word_of(share, mine) |= bit_of(mine);
    mine->used[gpu] = own.used[gpu] += bytes;
    return true;
}

void region_unshare(uint64_t id) {
    LOCKED_REGION;
    struct region_share *share = locked && mine ? share_of(id) : NULL;
    if (share)
        leave(share, mine);
}

bool region_used(int gpu, uint64_t *used) {
    LOCKED_REGION;
    if (!locked) return false;
    reap();
    *used = total(gpu);
    return true;
}

int region_processes(int gpu, nvmlProcessV2 *out, int room) {
    int count = 0;
    LOCKED_REGION;
    if (!locked) return -1;
    reap();
    for (uint32_t i = 0; i < slots_used(); i++) {
        const struct region_slot *slot = &region->slot[i];
        if (!slot->pid || !slot->used[gpu])
            continue;
        if (count++ < room)
            out[count - 1] = (nvmlProcessV2){(unsigned)slot->pid, slot->used[gpu], UINT32_MAX, UINT32_MAX};
    }
    return count;
}

/* What is left of a share's budget, as far as anybody can have it or owe. */
static int64_t budget_of(const struct region_gpu *state) {
    int64_t budget = __atomic_load_n(&state->budget_ns, __ATOMIC_RELAXED);
    return budget > FRAME_NS ? FRAME_NS : budget < -DEBT_NS ? -DEBT_NS : budget;
}

/* Pay each frame's share in once, at the frame's start; nothing is saved up from one frame to the next. */
bool region_gate_wait(int gpu, uint64_t now, uint64_t *wait_ns) {
    const struct limit *limit = &fgpu_limits.gpu[gpu];
    uint64_t phase = limit->phase_ms * 1000000ull, frame = (now - phase) / FRAME_NS;
    LOCKED_REGION;
    if (!locked) return false;
    struct region_gpu *state = &region->gpu[gpu];
    if (frame != state->frame)
        limits_refresh();
    int64_t quota = (int64_t)limit->sm_points * (FRAME_NS / 10000), budget = budget_of(state);
    uint64_t last = __atomic_load_n(&state->frame, __ATOMIC_RELAXED);
    if (frame != last) {
        uint64_t passed = frame > last && frame - last < 1000000 ? frame - last : 1;
        budget = last ? budget + (int64_t)passed * quota : quota;
        state->frame = frame;
    }
    state->budget_ns = budget = budget > quota ? quota : budget;
    uint64_t frames = budget > 0 ? 0 : (uint64_t)(-budget / quota) + 1;
    *wait_ns = frames ? (frame + frames) * FRAME_NS + phase - now : 0;
    return true;
}

/* Insert [start, end] into the sorted spans and return how much of it was not covered yet. */
static uint64_t cover(struct region_gpu *state, uint64_t start, uint64_t end) {
    uint64_t whole = end - start, fresh = whole;
    uint32_t spans = __atomic_load_n(&state->spans, __ATOMIC_RELAXED), first = 0, last;
    spans = spans > REGION_SPANS ? 0 : spans;
    while (first < spans && state->span[first].end < start)
        first++;
    for (last = first; last < spans && state->span[last].start <= end; last++)
        fresh -= least(state->span[last].end, end) - most(state->span[last].start, start);
    if (last > first) {
        start = least(state->span[first].start, start);
        end = most(state->span[last - 1].end, end);
    } else if (spans == REGION_SPANS) { /* full: the oldest span is forgotten */
        memmove(&state->span[0], &state->span[1], (REGION_SPANS - 1) * sizeof state->span[0]);
        spans--;
        first = last = first ? first - 1 : 0;
    }
    memmove(&state->span[first + 1], &state->span[last], (spans - last) * sizeof state->span[0]);
    state->span[first].start = start;
    state->span[first].end = end;
    state->spans = spans - (last - first) + 1;
    return least(fresh, whole);
}

/* Where an arbiter charges, this is for the view alone, and a stopped process must not hold up the others' launches. */
void region_gate_busy(int gpu, uint64_t start, uint64_t end, bool charge) {
    bool locked __attribute__((cleanup(unlock))) = lock(charge);
    if (!locked || end <= start) return;
    struct region_gpu *state = &region->gpu[gpu];
    uint64_t fresh = cover(state, start, end), second = end / 1000000000u;
    state->budget_ns = budget_of(state) - (charge ? (int64_t)least(fresh, DEBT_NS) : 0);
    if (state->second[second % 4] != second) {
        state->second[second % 4] = second;
        state->busy_ns[second % 4] = 0;
    }
    state->busy_ns[second % 4] += fresh;
}

void region_governed(uint64_t now) { atomic_store_explicit(&region->governed_at, now, memory_order_relaxed); }

/* What is later than now is of another start of the host. */
uint64_t region_governed_at(uint64_t now) {
    uint64_t at = atomic_load_explicit(&region->governed_at, memory_order_relaxed);
    return at <= now ? at : 0;
}

/* How much of its share of the SMs the container used in the last full second. */
unsigned region_gate_percent(int gpu, uint64_t now) {
    uint64_t second = now / 1000000000u - 1;
    LOCKED_REGION;
    if (!locked || region->gpu[gpu].second[second % 4] != second) return 0;
    uint64_t busy = region->gpu[gpu].busy_ns[second % 4];
    /* ns of a second -> percent of the share */
    return (unsigned)least(busy * ALL_SMS / fgpu_limits.gpu[gpu].sm_points / 10000000u, 100);
}
