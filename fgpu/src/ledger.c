/* What this process holds: handle -> charge. Several handles may keep one charge alive (a VMM allocation and its
 * mappings, a pool and the pointers in it, a graph and its executables); the last one gone releases it. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fgpu.h"

enum { BUCKETS = 16384 };

struct entry {
    struct entry *next;
    uint64_t key, size;
    struct hold *hold;
    enum kind kind;
};

static struct entry *table[BUCKETS];
static pthread_mutex_t ledger_lock = PTHREAD_MUTEX_INITIALIZER;

static struct entry **bucket(enum kind kind, uint64_t key) {
    uint64_t hash = (key ^ (uint64_t)kind << 56) * 0x9E3779B97F4A7C15ull;
    return &table[hash >> 50];
}

static CUresult charge(int gpu, uint64_t bytes) {
    return gpu < 0 || !bytes ? CUDA_SUCCESS : region_charge(gpu, bytes, fgpu_limits.gpu[gpu].mem_bytes);
}

/* Charge `bytes`; before saying no, take back what this process' pools do not use. */
static CUresult charge_or_reconcile(int gpu, uint64_t bytes) {
    CUresult rc = charge(gpu, bytes);
    if (rc != CUDA_OUT_OF_MEMORY)
        return rc;
    pools_reconcile(true);
    return charge(gpu, bytes);
}

CUresult hold_new(int gpu, uint64_t bytes, CUcontext context, struct hold **out) {
    struct hold *hold = calloc(1, sizeof *hold);
    CUresult rc = hold ? charge_or_reconcile(gpu, bytes) : CUDA_OUT_OF_MEMORY;
    if (rc) {
        free(hold);
        return rc;
    }
    *hold = (struct hold){.gpu = gpu, .bytes = bytes, .context = context};
    *out = hold;
    return CUDA_SUCCESS;
}

/* The caller serialises changes of one hold. */
CUresult hold_resize(struct hold *hold, uint64_t bytes) {
    CUresult rc = CUDA_SUCCESS;
    if (bytes > hold->bytes)
        rc = charge(hold->gpu, bytes - hold->bytes);
    else if (hold->gpu >= 0)
        region_release(hold->gpu, hold->bytes - bytes);
    if (!rc)
        hold->bytes = bytes;
    return rc;
}

void hold_undo(struct hold *hold) {
    if (hold->gpu >= 0 && hold->bytes)
        region_release(hold->gpu, hold->bytes);
    free(hold);
}

/* Without memory for an entry the charge stays for ever: too much is charged then, never too little. */
void ledger_put(enum kind kind, uint64_t key, uint64_t size, struct hold *hold) {
    struct entry *entry = malloc(sizeof *entry), **at = bucket(kind, key);
    pthread_mutex_lock(&ledger_lock);
    hold->refs++;
    if (entry) {
        *entry = (struct entry){*at, key, size, hold, kind};
        *at = entry;
    }
    pthread_mutex_unlock(&ledger_lock);
}

struct hold *ledger_find(enum kind kind, uint64_t key, int gpu) {
    struct hold *found = NULL;
    pthread_mutex_lock(&ledger_lock);
    for (struct entry *e = *bucket(kind, key); e && !found; e = e->next)
        if (e->kind == kind && e->key == key && (gpu == -1 || e->hold->gpu == gpu))
            found = e->hold;
    pthread_mutex_unlock(&ledger_lock);
    return found;
}

/* The hold of any entry of that kind and GPU whose range has the address. */
struct hold *ledger_search(enum kind kind, uint64_t address, int gpu) {
    struct hold *found = NULL;
    pthread_mutex_lock(&ledger_lock);
    for (int i = 0; i < BUCKETS && !found; i++)
        for (struct entry *e = table[i]; e && !found; e = e->next)
            if (e->kind == kind && (address == ANYWHERE || address - e->key < e->size)
                && (gpu == -1 || e->hold->gpu == gpu))
                found = e->hold;
    pthread_mutex_unlock(&ledger_lock);
    return found;
}

/* Take the entry at `at` out of its chain; return its hold if that was the last reference. */
static struct hold *unlink_entry(struct entry **at) {
    struct entry *entry = *at;
    struct hold *hold = entry->hold;
    *at = entry->next;
    free(entry);
    return --hold->refs == 0 ? hold : NULL;
}

/* Drop the oldest entry of that key: a freed address may have been handed out again already. */
bool ledger_drop(enum kind kind, uint64_t key, uint64_t *size) {
    struct entry **found = NULL;
    struct hold *last = NULL;
    pthread_mutex_lock(&ledger_lock);
    for (struct entry **at = bucket(kind, key); *at; at = &(*at)->next)
        if ((*at)->kind == kind && (*at)->key == key)
            found = at;
    if (found) {
        if (size)
            *size = (*found)->size;
        last = unlink_entry(found);
    }
    pthread_mutex_unlock(&ledger_lock);
    if (last)
        hold_undo(last);
    return found != NULL;
}

void ledger_drop_context(CUcontext context) {
    struct hold *last;
    pthread_mutex_lock(&ledger_lock);
    for (int i = 0; context && i < BUCKETS; i++)
        for (struct entry **at = &table[i]; *at;) {
            if ((*at)->hold->context != context) {
                at = &(*at)->next;
                continue;
            }
            last = unlink_entry(at);
            if (last)
                hold_undo(last);
        }
    pthread_mutex_unlock(&ledger_lock);
}

void ledger_share(enum kind from, uint64_t key, enum kind to, uint64_t other) {
    struct hold *shared[MAX_GPUS];
    int count = 0;
    pthread_mutex_lock(&ledger_lock);
    for (struct entry *e = *bucket(from, key); e; e = e->next)
        if (e->kind == from && e->key == key && count < MAX_GPUS)
            shared[count++] = e->hold;
    pthread_mutex_unlock(&ledger_lock);
    for (int i = 0; i < count; i++)
        ledger_put(to, other, 0, shared[i]);
}

void ledger_each(enum kind kind, void (*visit)(struct hold *)) {
    pthread_mutex_lock(&ledger_lock);
    for (int i = 0; i < BUCKETS; i++)
        for (struct entry *e = table[i]; e; e = e->next)
            if (e->kind == kind)
                visit(e->hold);
    pthread_mutex_unlock(&ledger_lock);
}

/* After fork: the memory is the parent's, and its charges are too. */
void ledger_forget(void) {
    pthread_mutex_init(&ledger_lock, NULL);
    memset(table, 0, sizeof table);
}
