/* A library that uses the GPU: what becomes of an allocation of so many bytes. It looks the driver's functions up, or is
 * linked against the driver (-DLINKED). */
#include "../../sim/driver.h"

CUresult cuCtxSetCurrent(CUcontext context);
DRIVER int plugin_allocate(unsigned long long bytes);
#ifndef LINKED
#include <dlfcn.h>

#define cuInit(...) FIND(cuInit)(__VA_ARGS__)
#define cuDevicePrimaryCtxRetain(...) FIND(cuDevicePrimaryCtxRetain)(__VA_ARGS__)
#define cuCtxSetCurrent(...) FIND(cuCtxSetCurrent)(__VA_ARGS__)
#define cuMemAlloc_v2(...) FIND(cuMemAlloc_v2)(__VA_ARGS__)
#define FIND(name) ((__typeof__(&name))(uintptr_t)dlsym(dlopen("libcuda.so.1", RTLD_NOW), #name))
#endif

int plugin_allocate(unsigned long long bytes)
{
    CUcontext context;
    CUdeviceptr pointer;
    CUresult rc = cuInit(0);
    if (!rc && !(rc = cuDevicePrimaryCtxRetain(&context, 0)))
        cuCtxSetCurrent(context);
    return rc ? rc : cuMemAlloc_v2(&pointer, bytes);
}
