/* What the loader has loaded, as its own tables say. */
#pragma once

#include <link.h>

#include "fgpu.h"

/* These run inside other libraries' start-up, sanitizers' included: no libc, no instrumentation. */
#define EARLY __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

struct object_tables {
    ElfW(Sym) *symbols;
    const char *strings, *soname; /* "" without one */
    const uint32_t *hash, *old_hash; /* GNU's, and that of before */
    const ElfW(Rela) *relocations[2];
    size_t relocation_bytes[2];
};
extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden"))); /* ours, which tells our own object */
#define EACH_OBJECT(o) (const struct link_map *o = objects_first(); o; o = o->l_next)
const struct link_map *objects_first(void); /* of the namespace that we are in */
void objects_tables(const struct link_map *object, struct object_tables *out);
bool objects_same(const char *a, const char *b);
bool objects_is_libc(const struct object_tables *tables);
/* The functions of glibc's that we export too, and glibc's own, whatever comes before it. */
enum libc_function { DLSYM, DLVSYM, DLOPEN, DLMOPEN, LIBC_FUNCTIONS };
extern const char *const objects_libc_names[LIBC_FUNCTIONS];
void *objects_libc_function(enum libc_function which);
