/* Reads the loader's list of what is loaded: we export names of glibc's, so an ordinary lookup from here finds ours. */
#include "objects.h"

#include <dlfcn.h>
#include <stdatomic.h>

EARLY bool objects_same(const char *a, const char *b) {
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

/* The list that the loader shows is the program's; a copy of us in a namespace of its own asks for its own. */
EARLY const struct link_map *objects_first(void) {
    static void *_Atomic cache;
    const struct link_map *first = atomic_load_explicit(&cache, memory_order_relaxed);
    Dl_info unused;
    struct link_map *own = NULL;
    for (const struct link_map *object = _r_debug.r_map; object && !first; object = object->l_next)
        if (object->l_ld == _DYNAMIC)
            first = _r_debug.r_map;
    if (!first && dladdr1(_DYNAMIC, &unused, (void **)&own, RTLD_DL_LINKMAP))
        for (first = own; first->l_prev; first = first->l_prev) {
        }
    atomic_store_explicit(&cache, (void *)(uintptr_t)first, memory_order_relaxed);
    return first;
}

/* The loader has relocated these addresses, but for the kernel's own object. */
EARLY static void *address(const struct link_map *object, const ElfW(Dyn) *dyn) {
    return (void *)(dyn->d_un.d_ptr < object->l_addr ? object->l_addr + dyn->d_un.d_ptr : dyn->d_un.d_ptr);
}

EARLY void objects_tables(const struct link_map *object, struct object_tables *out) {
    size_t soname = 0;
    *out = (struct object_tables){.soname = ""};
    for (const ElfW(Dyn) *dyn = object->l_ld; dyn && dyn->d_tag != DT_NULL; dyn++) {
        switch (dyn->d_tag) {
        case DT_SYMTAB: out->symbols = address(object, dyn); break;
        case DT_STRTAB: out->strings = address(object, dyn); break;
        case DT_GNU_HASH: out->hash = address(object, dyn); break;
        case DT_HASH: out->old_hash = address(object, dyn); break;
        case DT_SONAME: soname = dyn->d_un.d_val; break;
        case DT_RELA: out->relocations[0] = address(object, dyn); break;
        case DT_RELASZ: out->relocation_bytes[0] = dyn->d_un.d_val; break;
        case DT_JMPREL: out->relocations[1] = address(object, dyn); break;
        case DT_PLTRELSZ: out->relocation_bytes[1] = dyn->d_un.d_val; break;
        default: break;
        }
    }
    if (out->strings && soname)
        out->soname = out->strings + soname;
}

/* The address of a function in a loaded object, from its GNU hash table. */
EARLY static void *hashed(const struct link_map *object, const struct object_tables *tables, const char *name) {
    const uint32_t *table = tables->hash;
    uint32_t hash = 5381;
    if (!tables->symbols || !tables->strings || !table) return NULL;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    const uint32_t *buckets = table + 4 + table[2] * 2, *chain = buckets + table[0];
    for (uint32_t i = buckets[hash % table[0]]; i >= table[1]; i++) {
        const ElfW(Sym) *symbol = &tables->symbols[i];
        if ((chain[i - table[1]] | 1) == (hash | 1) && objects_same(tables->strings + symbol->st_name, name))
            return (char *)object->l_addr + symbol->st_value;
        if (chain[i - table[1]] & 1)
            break;
    }
    return NULL;
}

EARLY bool objects_is_libc(const struct object_tables *tables) {
    return objects_same(tables->soname, "libc.so.6") || objects_same(tables->soname, "libdl.so.2");
}

const char *const objects_libc_names[] = {"dlsym", "dlvsym", "dlopen", "dlmopen"};

EARLY void *objects_libc_function(enum libc_function which) {
    static void *_Atomic cache[LIBC_FUNCTIONS];
    struct object_tables tables;
    void *known = atomic_load_explicit(&cache[which], memory_order_relaxed);
    if (known) return known;
    for (const struct link_map *object = objects_first(); object && !known; object = object->l_next) {
        objects_tables(object, &tables);
        known = objects_is_libc(&tables) ? hashed(object, &tables, objects_libc_names[which]) : NULL;
    }
    atomic_store_explicit(&cache[which], known, memory_order_relaxed);
    return known;
}
