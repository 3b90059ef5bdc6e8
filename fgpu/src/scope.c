/* Lookups that would go past us. The loader looks at us before the libraries that a program needs, but not before those
 * that LD_PRELOAD names (libc.so.6, libcuda.so.1), and a library opened with RTLD_DEEPBIND looks at its own first.
 * Where that happens, the symbol tables of glibc and of the driver are made to lead to us, and what was bound before is
 * bound anew: the order no longer matters. A new namespace (dlmopen) gets a copy of us before anything else. */
#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "objects.h"

#if defined(__x86_64__)
enum { SLOT = R_X86_64_JUMP_SLOT, DATA = R_X86_64_GLOB_DAT, WORD = R_X86_64_64 };
#elif defined(__aarch64__)
enum { SLOT = R_AARCH64_JUMP_SLOT, DATA = R_AARCH64_GLOB_DAT, WORD = R_AARCH64_ABS64 };
#endif

PER_PROCESS static pthread_mutex_t scope = PTHREAD_MUTEX_INITIALIZER;

extern char dlsym_entry[], dlvsym_entry[], dlopen_entry[], dlmopen_entry[];
static void *const entries[] = {dlsym_entry, dlvsym_entry, dlopen_entry, dlmopen_entry}; /* of the libc_functions */

EARLY void *scope_entry(const char *name) {
    for (int i = 0; i < LIBC_FUNCTIONS && name[0] == 'd'; i++)
        if (objects_same(name, objects_libc_names[i])) return entries[i];
    return NULL;
}

/* Where a lookup of the name would end without us, and where it shall. NULL: not ours. */
static void *replacement(const char *name, void **original) {
    for (int i = 0; i < LIBC_FUNCTIONS && name[0] == 'd'; i++)
        if (objects_same(name, objects_libc_names[i])) {
            *original = objects_libc_function((enum libc_function)i);
            return entries[i];
        }
    bool may_be_drivers = (name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v');
    if (!may_be_drivers) return NULL;
    for EACH_SYMBOL(s)
        if (s->wrapper && s->real && objects_same(name, s->name)) {
            *original = s->real;
            return s->wrapper;
        }
    return NULL;
}

static const char *const drivers[] = {CUDA_LIBRARY, NVML_LIBRARY};

EARLY static bool is_driver(const struct object_tables *tables) {
    return objects_same(tables->soname, drivers[0]) || objects_same(tables->soname, drivers[1]);
}

struct span { /* of memory, and how its pages are protected */
    uintptr_t from, to;
    int protection;
};

static int find_protection(struct dl_phdr_info *info, size_t size, void *data) {
    struct span *span = data;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    int found = 0;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr, end = start + part->p_memsz;
        if (part->p_type == PT_LOAD && span->from >= start && span->from < end)
            found = (part->p_flags & PF_R ? PROT_READ : 0) | (part->p_flags & PF_W ? PROT_WRITE : 0)
                    | (part->p_flags & PF_X ? PROT_EXEC : 0);
        if (part->p_type == PT_GNU_RELRO && span->from >= (start & -page) && span->from < (end & -page)) {
            found = PROT_READ;
            break;
        }
    }
    span->protection = found;
    return found;
}

static bool protect(const struct span *span, int more) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = span->from & -page;
    return mprotect((void *)from, span->to - from, span->protection | more) == 0;
}

/* One more than the number of the last symbol. */
static uint32_t symbols_end(const struct object_tables *tables) {
    const uint32_t *table = tables->hash;
    uint32_t last = 0;
    if (tables->old_hash) return tables->old_hash[1];
    if (!table) return 0;
    const uint32_t *buckets = table + 4 + table[2] * 2, *chain = buckets + table[0];
    for (uint32_t i = 0; i < table[0]; i++)
        last = (uint32_t)most(last, buckets[i]);
    while (last >= table[1] && !(chain[last - table[1]] & 1))
        last++;
    return last < table[1] ? table[1] : last + 1;
}

/* Lookups in that object find us; names that no program shall have are not there. */
static void divert(const struct link_map *object, const struct object_tables *tables) {
    void *original;
    if (!tables->symbols || !tables->strings) return;
    uint32_t end = symbols_end(tables);
    struct span span = {(uintptr_t)tables->symbols, (uintptr_t)&tables->symbols[end], 0};
    if (!end || !dl_iterate_phdr(find_protection, &span) || !protect(&span, PROT_WRITE)) return;
    for (uint32_t i = 0; i < end; i++) {
        ElfW(Sym) *symbol = &tables->symbols[i];
        const char *name = tables->strings + symbol->st_name;
        void *ours = symbol->st_shndx == SHN_UNDEF ? NULL : replacement(name, &original);
        if (ours)
            symbol->st_value = (uintptr_t)ours - object->l_addr;
        else if (is_driver(tables) && route_guards(name))
            *symbol = (ElfW(Sym)){.st_name = symbol->st_name, .st_info = symbol->st_info};
    }
    protect(&span, 0);
}

/* What the object has bound to the originals already. */
static void rebind(const struct link_map *object, const struct object_tables *tables) {
    for (int list = 0; list < 2; list++) {
        size_t count = tables->relocations[list] ? tables->relocation_bytes[list] / sizeof(ElfW(Rela)) : 0;
        for (const ElfW(Rela) *r = tables->relocations[list]; count; r++, count--) {
            unsigned type = (unsigned)ELF64_R_TYPE(r->r_info);
            void **slot = (void **)(object->l_addr + r->r_offset), *original = NULL, *ours;
            if ((type != SLOT && type != DATA && type != WORD) || r->r_addend || !ELF64_R_SYM(r->r_info))
                continue;
            ours = replacement(tables->strings + tables->symbols[ELF64_R_SYM(r->r_info)].st_name, &original);
            struct span span = {(uintptr_t)slot, (uintptr_t)(slot + 1), 0};
            if (!ours || *slot != original || !dl_iterate_phdr(find_protection, &span))
                continue;
            if (protect(&span, PROT_WRITE))
                *slot = ours;
            protect(&span, 0);
        }
    }
}

/* What programs would get without us: glibc's, or that of another who stands for it and comes after us. */
EARLY static void *next_dlopen(void) {
    static void *_Atomic cache;
    void *known = atomic_load_explicit(&cache, memory_order_relaxed);
    if (known) return known;
    known = fgpu_real_dlsym(RTLD_NEXT, "dlopen");
    if (!known || known == dlopen_entry)
        known = objects_libc_function(DLOPEN);
    atomic_store_explicit(&cache, known, memory_order_relaxed);
    return known;
}

/* With the loader's list of objects locked by who calls. */
static int divert_all(struct dl_phdr_info *info, size_t size, void *unused) {
    struct object_tables tables;
    (void)info, (void)size, (void)unused;
    for EACH_OBJECT(object) {
        objects_tables(object, &tables);
        if (is_driver(&tables) || objects_is_libc(&tables))
            divert(object, &tables);
    }
    for EACH_OBJECT(object) {
        objects_tables(object, &tables);
        if (object->l_ld != _DYNAMIC && tables.symbols)
            rebind(object, &tables);
    }
    return 1;
}

/* Have every lookup end here, of now and of later. What the tables say now is remembered first. */
static void take_over(void) {
    for (int i = 0; i < LIBC_FUNCTIONS; i++)
        objects_libc_function((enum libc_function)i);
    next_dlopen();
    for (int i = 0; i < 2; i++)
        if (dlopen(drivers[i], RTLD_LAZY | RTLD_NOLOAD))
            fgpu_bind(drivers[i]);
    dl_iterate_phdr(divert_all, NULL);
}

/* At the start of every program: most have nothing before us but themselves. */
__attribute__((constructor)) static void look_at_order(void) {
    struct object_tables tables;
    bool late = false;
    for (const struct link_map *o = objects_first(); o && o->l_ld != _DYNAMIC && !late; o = o->l_next) {
        objects_tables(o, &tables);
        late = objects_is_libc(&tables) || is_driver(&tables);
    }
    if (late)
        take_over();
}

/* The driver must be there to be found, before the library comes that would find its own way to it. */
static void prepare_for_deep_binding(void) {
    static bool done;
    LOCKED(scope);
    bool cuda = fgpu_bind(CUDA_LIBRARY), nvml = fgpu_bind(NVML_LIBRARY);
    if (!done)
        take_over();
    done = cuda && nvml;
}

static void *refuse(void) { return NULL; }

static Lmid_t new_namespace(void) {
    Dl_info own;
    Lmid_t fresh;
    __typeof__(&dlmopen) real = (__typeof__(&dlmopen))objects_libc_function(DLMOPEN);
    void *copy = dladdr(_DYNAMIC, &own) ? real(LM_ID_NEWLM, own.dli_fname, RTLD_NOW) : NULL;
    return copy && dlinfo(copy, RTLD_DI_LMID, &fresh) == 0 ? fresh : LM_ID_NEWLM;
}

/* Choose where a call goes on. The trampoline then jumps there with the caller's return address in place, since glibc
 * tells from it what RTLD_NEXT means, and whose run paths. `arguments`: those of the call, the last one first. */
EARLY __attribute__((used, visibility("hidden"))) void *scope_pick(uint64_t *arguments, int which) {
    if (which < DLOPEN) return route_pick((const char *)(uintptr_t)arguments[1], which);
    if (which == DLOPEN) {
        if ((int)arguments[1] & RTLD_DEEPBIND)
            prepare_for_deep_binding();
        return next_dlopen();
    }
    arguments[0] &= ~(uint64_t)RTLD_DEEPBIND;
    if ((Lmid_t)arguments[2] == LM_ID_NEWLM) {
        arguments[2] = (uint64_t)new_namespace();
        if ((Lmid_t)arguments[2] == LM_ID_NEWLM) return (void *)(uintptr_t)refuse; /* dlerror has why */
    }
    return objects_libc_function(DLMOPEN);
}

#if defined(__x86_64__)
#define PICK_AND_JUMP(which) \
    "push %rdi\npush %rsi\npush %rdx\nmov %rsp, %rdi\nmov $" which ", %esi\ncall scope_pick\n" \
    "pop %rdx\npop %rsi\npop %rdi\njmp *%rax\n"
#elif defined(__aarch64__) /* hint #34 is `bti c`: this is entered by calls from elsewhere */
#define PICK_AND_JUMP(which) \
    "hint #34\nstp x29, x30, [sp, #-48]!\nmov x29, sp\nstp x2, x1, [sp, #16]\nstr x0, [sp, #32]\n" \
    "add x0, sp, #16\nmov w1, #" which "\nbl scope_pick\nmov x16, x0\n" \
    "ldr x0, [sp, #32]\nldp x2, x1, [sp, #16]\nldp x29, x30, [sp], #48\nbr x16\n"
#else
#error "there is no trampoline for this architecture"
#endif
#define TRAMPOLINE(name, which) \
    __asm__(".text\n.globl " name "\n.hidden " name "_entry\n.globl " name "_entry\n.type " name ",%function\n" \
            ".p2align 4\n" name ":\n" name "_entry:\n" PICK_AND_JUMP(which) ".size " name ", .-" name "\n")
TRAMPOLINE("dlsym", "0");
TRAMPOLINE("dlvsym", "1");
TRAMPOLINE("dlopen", "2");
TRAMPOLINE("dlmopen", "3");
