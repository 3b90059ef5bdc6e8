/* How a program finds the driver's functions, and is given ours instead: dlsym, dlvsym and cuGetProcAddress. */
#include <dlfcn.h>
#include <stdatomic.h>

#include "functions.h" /* guarded, harmless: names, each ended by a NUL; made from functions.tsv */
#include "objects.h"

EARLY static bool begins(const char *text, const char *prefix) {
    while (*prefix && *text == *prefix)
        text++, prefix++;
    return *prefix == 0;
}

EARLY static void *wrapper_of(const char *name) {
    for EACH_SYMBOL(s)
        if (s->wrapper && objects_same(s->name, name)) return s->wrapper;
    return NULL;
}

EARLY static bool has(const char *text, const char *word) {
    while (*text && !begins(text, word))
        text++;
    return *text;
}

/* What is called like a function that has a wrapper, and is not known itself, may do the same: it is withheld. */
EARLY static bool refused(const char *name) {
    bool is_guarded = false, nvml = begins(name, "nvml");
    for (const char *stem = guarded; *stem; stem++) { /* a word in NVML's names has a capital letter, a stem has none */
        is_guarded |= *stem >= 'a' ? begins(name, stem) : nvml && has(name, stem);
        while (*stem)
            stem++;
    }
    for (const char *known = harmless; is_guarded && *known; known++) {
        if (objects_same(name, known)) return false;
        while (*known)
            known++;
    }
    return is_guarded;
}

EARLY bool route_guards(const char *name) {
    bool may_be_drivers = begins(name, "cu") || begins(name, "nvml");
    return may_be_drivers && (wrapper_of(name) || refused(name));
}

EARLY void *fgpu_real_dlsym(void *handle, const char *name) {
    __typeof__(&dlsym) real = (__typeof__(&dlsym))objects_libc_function(DLSYM);
    return real(handle, name);
}

/* RTLD_DEFAULT and RTLD_NEXT would find ourselves; what counts is whether the driver is loaded and has the name. */
static void *routed(void *handle, const char *name, const char *version) {
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT)
        handle = dlopen(name[0] == 'c' ? CUDA_LIBRARY : NVML_LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
    __typeof__(&dlvsym) versioned = (__typeof__(&dlvsym))objects_libc_function(DLVSYM);
    if (!handle || !(version ? versioned(handle, name, version) : fgpu_real_dlsym(handle, name))) return NULL;
    void *wrapper = wrapper_of(name);
    return wrapper ? wrapper : fgpu_real_dlsym(handle, "(withheld by libfgpu)"); /* NULL, with a message for dlerror */
}

static void *routed_dlsym(void *handle, const char *name) { return routed(handle, name, NULL); }

EARLY static void *loaders_own(void *handle, const char *name) {
    (void)handle;
    return scope_entry(name);
}

EARLY void *route_pick(const char *name, int versioned) {
    if (name && route_guards(name)) return versioned ? (void *)(uintptr_t)routed : (void *)(uintptr_t)routed_dlsym;
    if (name && scope_entry(name)) return (void *)(uintptr_t)loaders_own;
    return objects_libc_function(versioned ? DLVSYM : DLSYM);
}

/* The driver picks the variant (version, per-thread stream); its address tells which one, so no table of versions. */
static CUresult substitute(CUresult rc, const char *name, void **function, int *status) {
    if (rc || !function || !*function) return rc;
    for EACH_SYMBOL(s)
        if (s->wrapper && s->real == *function) {
            *function = s->wrapper;
            return CUDA_SUCCESS;
        }
    if (!route_guards(name)) return CUDA_SUCCESS;
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
