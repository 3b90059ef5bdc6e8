/* Linked against the driver, so that the loader itself binds its calls: no lookup to intercept. */
#include <stdio.h>

#include "../../sim/driver.h"

CUresult cuCtxSetCurrent(CUcontext context);

int main(void)
{
    CUcontext context;
    CUdeviceptr pointer;
    size_t free_bytes = 0, total = 0;
    CUresult init = cuInit(0), fits = -1, beyond = -1;
    if (!init && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context)) {
        beyond = cuMemAlloc_v2(&pointer, 3ull << 30);
        fits = cuMemAlloc_v2(&pointer, 1ull << 30);
        cuMemGetInfo_v2(&free_bytes, &total);
    }
    printf("%d %d %d %zu %zu\n", init, beyond, fits, free_bytes, total);
    return 0;
}
