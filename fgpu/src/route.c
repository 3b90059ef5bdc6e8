/* How a program finds the driver's functions, and is given ours instead: dlsym, dlvsym and cuGetProcAddress. */
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>

#include "fgpu.h"

/* What no wrapper is known for although it allocates, launches or tells sizes is kept from the program. */
static const char *const guarded[] = {
    "cuMemAlloc", "cuMemHostAlloc", "cuMemHostRegister", "cuMemCreate", "cuMemPoolCreate", "cuMemGetInfo",
    "cuDeviceTotalMem", "cuArrayCreate",
    "cuArray3DCreate", "cuMipmappedArrayCreate", "cuGraphAddMemAlloc", "cuGraphAddNode", "cuGraphInstantiate",
    "cuGraphLaunch", "cuLaunch", "cuCtxCreate", "cuGreenCtxCreate", "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses", "nvmlDeviceGetUtilizationRates"};
static const char *const harmless[] = {"cuLaunchHostFunc"}; /* work of the host */

/* These run inside other libraries' start-up, sanitizers' included: no libc, no instrumentation. */
#define EARLY __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

EARLY static bool begins(const char *text, const char *prefix) {
    while (*prefix && *text == *prefix)
        text++, prefix++;
    return *prefix == 0;
}

EARLY static bool same(const char *a, const char *b) { return begins(a, b) && begins(b, a); }

EARLY static void *wrapper_of(const char *name) {
    for EACH_SYMBOL(s)
        if (s->wrapper && same(s->name, name)) return s->wrapper;
    return NULL;
}

EARLY static bool refused(const char *name) {
    for (unsigned i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (begins(name, harmless[i])) return false;
    for (unsigned i = 0; i < sizeof guarded / sizeof *guarded; i++)
        if (begins(name, guarded[i])) return true;
    return false;
}

/* The address of a function in a loaded object, from its GNU hash table. */
EARLY static void *hashed(const struct link_map *object, const char *name) {
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *table = NULL;
    uint32_t hash = 5381;
    for (const ElfW(Dyn) *dyn = object->l_ld; dyn->d_tag != DT_NULL; dyn++) {
        symbols = dyn->d_tag == DT_SYMTAB ? (const void *)dyn->d_un.d_ptr : symbols;
        strings = dyn->d_tag == DT_STRTAB ? (const void *)dyn->d_un.d_ptr : strings;
        table = dyn->d_tag == DT_GNU_HASH ? (const void *)dyn->d_un.d_ptr : table;
    }
    if (!symbols || !strings || !table) return NULL;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    const uint32_t *buckets = table + 4 + table[2] * 2, *chain = buckets + table[0];
    for (uint32_t i = buckets[hash % table[0]]; i >= table[1]; i++) {
        if ((chain[i - table[1]] | 1) == (hash | 1) && same(strings + symbols[i].st_name, name))
            return (char *)object->l_addr + symbols[i].st_value;
        if (chain[i - table[1]] & 1)
            break;
    }
    return NULL;
}

EARLY static bool is_libc(const char *path) {
    const char *base = path;
    for (const char *c = path; *c; c++)
        base = *c == '/' ? c + 1 : base;
    return same(base, "libc.so.6") || same(base, "libdl.so.2");
}

/* glibc's own function: we export the same name, so no ordinary lookup from here would find it. */
EARLY static void *libc_function(const char *name, void *_Atomic *cache) {
    void *known = atomic_load_explicit(cache, memory_order_relaxed);
    for (const struct link_map *object = _r_debug.r_map; object && !known; object = object->l_next)
        known = is_libc(object->l_name) ? hashed(object, name) : NULL;
    atomic_store_explicit(cache, known, memory_order_relaxed);
    return known;
}

static void *_Atomic dlsym_cache, *_Atomic dlvsym_cache;

EARLY void *fgpu_real_dlsym(void *handle, const char *name) {
    __typeof__(&dlsym) real = (__typeof__(&dlsym))libc_function("dlsym", &dlsym_cache);
    return real(handle, name);
}

/* RTLD_DEFAULT and RTLD_NEXT would find ourselves; what counts is whether the driver is loaded and has the name. */
static void *routed(void *handle, const char *name, const char *version) {
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT)
        handle = dlopen(name[0] == 'c' ? CUDA_LIBRARY : NVML_LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
    __typeof__(&dlvsym) versioned = (__typeof__(&dlvsym))libc_function("dlvsym", &dlvsym_cache);
    if (!handle || !(version ? versioned(handle, name, version) : fgpu_real_dlsym(handle, name))) return NULL;
    void *wrapper = wrapper_of(name);
    return wrapper ? wrapper : fgpu_real_dlsym(handle, "(withheld by libfgpu)"); /* NULL, with a message for dlerror */
}

static void *routed_dlsym(void *handle, const char *name) { return routed(handle, name, NULL); }

extern char dlsym_entry[], dlvsym_entry[];

static void *ours_dlsym(void *handle, const char *name) {
    (void)handle;
    return name[2] == 's' ? (void *)dlsym_entry : (void *)dlvsym_entry;
}

/* Choose who answers a lookup. The trampoline then jumps there with the caller's return address in place, since
 * glibc tells from it what RTLD_NEXT means. */
EARLY __attribute__((used, visibility("hidden"))) void *fgpu_pick(const char *name, int versioned) {
    if (name && (wrapper_of(name) || refused(name)))
        return versioned ? (void *)(uintptr_t)routed : (void *)(uintptr_t)routed_dlsym;
    if (name && (same(name, "dlsym") || same(name, "dlvsym"))) return (void *)(uintptr_t)ours_dlsym;
    return versioned ? libc_function("dlvsym", &dlvsym_cache) : libc_function("dlsym", &dlsym_cache);
}

#if defined(__x86_64__)
#define PICK_AND_JUMP(versioned) \
    "push %rdi\npush %rsi\npush %rdx\nmov %rsi, %rdi\nmov $" versioned ", %esi\ncall fgpu_pick\n" \
    "pop %rdx\npop %rsi\npop %rdi\njmp *%rax\n"
#elif defined(__aarch64__) /* hint #34 is `bti c`: this is entered by calls from elsewhere */
#define PICK_AND_JUMP(versioned) \
    "hint #34\nstp x29, x30, [sp, #-48]!\nmov x29, sp\nstp x0, x1, [sp, #16]\nstr x2, [sp, #32]\n" \
    "mov x0, x1\nmov w1, #" versioned "\nbl fgpu_pick\nmov x16, x0\n" \
    "ldr x2, [sp, #32]\nldp x0, x1, [sp, #16]\nldp x29, x30, [sp], #48\nbr x16\n"
#else
#error "there is no trampoline for this architecture"
#endif
#define TRAMPOLINE(name, versioned) \
    __asm__(".text\n.globl " name "\n.hidden " name "_entry\n.globl " name "_entry\n.type " name ",%function\n" \
            ".p2align 4\n" name ":\n" name "_entry:\n" PICK_AND_JUMP(versioned) ".size " name ", .-" name "\n")
TRAMPOLINE("dlsym", "0");
TRAMPOLINE("dlvsym", "1");

/* The driver picks the variant (version, per-thread stream); its address tells which one, so no table of versions. */
static CUresult substitute(CUresult rc, const char *name, void **function, int *status) {
    if (rc || !function || !*function) return rc;
    for EACH_SYMBOL(s)
        if (s->wrapper && s->real == *function) {
            *function = s->wrapper;
            return CUDA_SUCCESS;
        }
    if (!refused(name) && !wrapper_of(name)) return CUDA_SUCCESS;
    *function = NULL;
    if (status)
        *status = 1; /* symbol not found */
    return CUDA_NOT_FOUND;
}

WRAP(cuGetProcAddress, (const char *name, void **function, int version, uint64_t flags)) {
    if (!fgpu_bind(CUDA_LIBRARY)) return CUDA_SYSTEM_NOT_READY;
    return substitute(CALL(cuGetProcAddress, (name, function, version, flags)), name, function, NULL);
}

WRAP(cuGetProcAddress_v2, (const char *name, void **function, int version, uint64_t flags, int *status)) {
    if (!fgpu_bind(CUDA_LIBRARY)) return CUDA_SYSTEM_NOT_READY;
    return substitute(CALL(cuGetProcAddress_v2, (name, function, version, flags, status)), name, function, status);
}
