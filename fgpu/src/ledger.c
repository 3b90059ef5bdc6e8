/* What this process holds: handle -> charge. Several handles may keep one charge alive (a VMM allocation and its
 * mappings, a pool and the pointers in it, a graph and its executables); the last one gone releases it. */
#include <stdlib.h>

#include "fgpu.h"

enum { LEAST_BITS = 6 };

struct entry {
    struct entry *next;
    enum kind kind;
    uint64_t key, size;
    uint64_t share; /* what other processes of the session know it by; 0: nothing */
    struct hold *hold;
};

/* Of each kind one, with about as many buckets as entries, so that no call costs more as more is held. */
PER_PROCESS static struct table {
    struct entry **buckets; /* NULL: none yet, and `first` is the only one */
    struct entry *first;
    unsigned bits;
    uint64_t count;
} tables[KINDS];
PER_PROCESS static pthread_mutex_t ledger_lock = PTHREAD_MUTEX_INITIALIZER;
#define EACH_BUCKET(b, table) \
    (struct entry **b = buckets_of(table), **end = b + (1ull << (table)->bits); b < end; b++)

static struct entry **buckets_of(struct table *table) { return table->buckets ? table->buckets : &table->first; }

static struct entry **bucket(enum kind kind, uint64_t key) {
    struct table *table = &tables[kind];
    return buckets_of(table) + (table->bits ? key * 0x9E3779B97F4A7C15ull >> (64 - table->bits) : 0);
}

/* Entries of one key stay in their order. Without memory for it the chains become longer. */
static void grow(enum kind kind) {
    struct table *table = &tables[kind], old = *table;
    unsigned bits = (unsigned)most(old.bits + 2, LEAST_BITS);
    struct entry **fresh = calloc(1ull << bits, sizeof *fresh), *next;
    if (!fresh) return;
    table->buckets = fresh;
    table->bits = bits;
    for EACH_BUCKET(from, &old)
        for (struct entry *entry = *from, **at; entry; entry = next) {
            next = entry->next;
            for (at = bucket(kind, entry->key); *at; at = &(*at)->next) {
            }
            *at = entry;
            entry->next = NULL;
        }
    free(old.buckets);
}

static struct entry *entry_of(enum kind kind, uint64_t key, const struct hold *hold) {
    for (struct entry *e = *bucket(kind, key); e; e = e->next)
        if (e->key == key && (!hold || e->hold == hold)) return e;
    return NULL;
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

/* For memory that is there already: at no cost where a process of the session holds it by that name. */
CUresult hold_open(uint64_t share, int gpu, uint64_t bytes, CUcontext context, struct hold **out, bool *shared) {
    *shared = false;
    if (!(*out = malloc(sizeof **out))) return CUDA_OUT_OF_MEMORY;
    **out = (struct hold){.gpu = gpu, .bytes = bytes, .context = context};
    if ((*shared = region_share(share, gpu, bytes))) return CUDA_SUCCESS;
    free(*out);
    return hold_new(gpu, bytes, context, out);
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
    if (tables[kind].count >= 1ull << tables[kind].bits)
        grow(kind);
    struct entry *entry = malloc(sizeof *entry), **at = bucket(kind, key);
    hold->refs++;
    if (entry) {
        tables[kind].count++;
        *entry = (struct entry){*at, kind, key, size, 0, hold};
        *at = entry;
    }
}

void ledger_put(enum kind kind, uint64_t key, uint64_t size, struct hold *hold) {
    LOCKED(ledger_lock);
    insert(kind, key, size, hold);
}

struct hold *ledger_find(enum kind kind, uint64_t key) {
    LOCKED(ledger_lock);
    struct entry *entry = entry_of(kind, key, NULL);
    return entry ? entry->hold : NULL;
}

/* The hold of the entry of that kind whose range has the address. */
struct hold *ledger_find_address(enum kind kind, uint64_t address) {
    LOCKED(ledger_lock);
    for EACH_BUCKET(at, &tables[kind])
        for (struct entry *e = *at; e; e = e->next)
            if (address - e->key < e->size) return e->hold;
    return NULL;
}

/* Take the entry at `at` out of its chain, and release its charge if that was the last reference. */
static void remove_entry(struct entry **at) {
    struct entry *entry = *at;
    *at = entry->next;
    tables[entry->kind].count--;
    if (entry->share)
        region_unshare(entry->share);
    if (--entry->hold->refs == 0)
        undo(entry->hold);
    free(entry);
}

/* Drop the oldest entry of that key: a freed address may have been handed out again already. */
bool ledger_drop(enum kind kind, uint64_t key, uint64_t *size) {
    LOCKED(ledger_lock);
    struct entry **found = NULL;
    for (struct entry **at = bucket(kind, key); *at; at = &(*at)->next)
        if ((*at)->key == key)
            found = at;
    if (!found) return false;
    if (size)
        *size = (*found)->size;
    remove_entry(found);
    return true;
}

bool ledger_drop_all(enum kind kind, uint64_t key) {
    bool had = false;
    while (ledger_drop(kind, key, NULL))
        had = true;
    return had;
}

void ledger_drop_context(CUcontext context) {
    LOCKED(ledger_lock);
    for (int kind = 0; kind < KINDS; kind++)
        for EACH_BUCKET(chain, &tables[kind])
            for (struct entry **at = chain; *at;)
                if ((*at)->hold->context == context)
                    remove_entry(at);
                else
                    at = &(*at)->next;
}

/* Whatever `key` keeps alive, `other` keeps alive too. */
void ledger_share(enum kind from, uint64_t key, enum kind to, uint64_t other) {
    LOCKED(ledger_lock);
    for (struct entry *e = *bucket(from, key); e; e = e->next)
        if (e->key == key && !entry_of(to, other, e->hold))
            insert(to, other, 0, e->hold);
}

bool ledger_mark(enum kind kind, uint64_t key, uint64_t share) {
    LOCKED(ledger_lock);
    struct entry *entry = entry_of(kind, key, NULL);
    if (!entry || entry->share) return false;
    entry->share = share;
    return true;
}

void ledger_each(enum kind kind, CUresult (*visit)(struct hold *, bool), bool how) {
    LOCKED(ledger_lock);
    for EACH_BUCKET(at, &tables[kind])
        for (struct entry *e = *at; e; e = e->next)
            visit(e->hold, how);
}
