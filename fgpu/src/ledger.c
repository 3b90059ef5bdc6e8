/* What this process holds: handle -> charge. Several handles may keep one charge alive (a VMM allocation and its
 * mappings, a pool and the pointers in it, a graph and its executables); the last one gone releases it. */
#include <stdlib.h>

#include "fgpu.h"

enum { BUCKET_BITS = 12, BUCKETS = 1 << BUCKET_BITS };

struct entry {
    struct entry *next;
    enum kind kind;
    uint64_t key, size;
    struct hold *hold;
};

PER_PROCESS static struct entry *table[BUCKETS];
PER_PROCESS static pthread_mutex_t ledger_lock = PTHREAD_MUTEX_INITIALIZER;

static struct entry **bucket(enum kind kind, uint64_t key) {
    return &table[(key ^ (uint64_t)kind << 56) * 0x9E3779B97F4A7C15ull >> (64 - BUCKET_BITS)];
}

/* The caller serialises changes of one hold. */
CUresult hold_resize(struct hold *hold, uint64_t bytes) {
    CUresult rc = region_change(hold->gpu, hold->bytes, bytes);
    if (!rc)
        hold->bytes = bytes;
    return rc;
}

static void undo(struct hold *hold) {
    hold_resize(hold, 0);
    free(hold);
}

/* Before saying no, take back what this process' pools do not use. */
CUresult hold_new(int gpu, uint64_t bytes, CUcontext context, struct hold **out) {
    if (!(*out = malloc(sizeof **out))) return CUDA_OUT_OF_MEMORY;
    **out = (struct hold){.gpu = gpu, .context = context};
    CUresult rc = hold_resize(*out, bytes);
    if (rc == CUDA_OUT_OF_MEMORY) {
        pools_reconcile(true);
        rc = hold_resize(*out, bytes);
    }
    if (rc) {
        undo(*out);
        *out = NULL;
    }
    return rc;
}

/* After the driver's answer: book the charge under its handle, or take it back. `hold` may be NULL: nothing to pay. */
CUresult hold_settle(CUresult rc, struct hold *hold, enum kind kind, uint64_t key) {
    if (hold && rc)
        undo(hold);
    else if (hold)
        ledger_put(kind, key, 0, hold);
    return rc;
}

/* Without memory for an entry the charge stays for ever: too much is charged then, never too little. */
static void insert(enum kind kind, uint64_t key, uint64_t size, struct hold *hold) {
    struct entry *entry = malloc(sizeof *entry), **at = bucket(kind, key);
    hold->refs++;
    if (entry) {
        *entry = (struct entry){*at, kind, key, size, hold};
        *at = entry;
    }
}

void ledger_put(enum kind kind, uint64_t key, uint64_t size, struct hold *hold) {
    LOCKED(ledger_lock);
    insert(kind, key, size, hold);
}

struct hold *ledger_find(enum kind kind, uint64_t key) {
    LOCKED(ledger_lock);
    for (struct entry *e = *bucket(kind, key); e; e = e->next)
        if (e->kind == kind && e->key == key) return e->hold;
    return NULL;
}

/* The hold of the entry of that kind whose range has the address. */
struct hold *ledger_find_address(enum kind kind, uint64_t address) {
    LOCKED(ledger_lock);
    for (int i = 0; i < BUCKETS; i++)
        for (struct entry *e = table[i]; e; e = e->next)
            if (e->kind == kind && address - e->key < e->size) return e->hold;
    return NULL;
}

/* Take the entry at `at` out of its chain, and release its charge if that was the last reference. */
static void remove_entry(struct entry **at) {
    struct entry *entry = *at;
    *at = entry->next;
    if (--entry->hold->refs == 0)
        undo(entry->hold);
    free(entry);
}

/* Drop the oldest entry of that key: a freed address may have been handed out again already. */
bool ledger_drop(enum kind kind, uint64_t key, uint64_t *size) {
    LOCKED(ledger_lock);
    struct entry **found = NULL;
    for (struct entry **at = bucket(kind, key); *at; at = &(*at)->next)
        if ((*at)->kind == kind && (*at)->key == key)
            found = at;
    if (!found) return false;
    if (size)
        *size = (*found)->size;
    remove_entry(found);
    return true;
}

void ledger_drop_context(CUcontext context) {
    LOCKED(ledger_lock);
    for (int i = 0; i < BUCKETS; i++)
        for (struct entry **at = &table[i]; *at;)
            if ((*at)->hold->context == context)
                remove_entry(at);
            else
                at = &(*at)->next;
}

/* Whatever `key` keeps alive, `other` keeps alive too. */
void ledger_share(enum kind from, uint64_t key, enum kind to, uint64_t other) {
    LOCKED(ledger_lock);
    for (struct entry *e = *bucket(from, key); e; e = e->next)
        if (e->kind == from && e->key == key)
            insert(to, other, 0, e->hold);
}

void ledger_each(enum kind kind, CUresult (*visit)(struct hold *, bool), bool how) {
    LOCKED(ledger_lock);
    for (int i = 0; i < BUCKETS; i++)
        for (struct entry *e = table[i]; e; e = e->next)
            if (e->kind == kind)
                visit(e->hold, how);
}
