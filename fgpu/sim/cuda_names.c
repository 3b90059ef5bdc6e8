/* What the simulated driver says of its devices, and the names of its errors, as cuda.h has them. */
#include "cuda.h"

/* Of a GPU like an H100; what is not named here is 0: not supported. */
static const struct { short attribute; int value; } attributes[] = {
    {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, /* threads of a block, blocks of a grid */
    {8, 49152}, {9, 65536}, {10, 32}, {11, 2147483647}, {12, 65536},                   /* shared, constant, warp, pitch, registers */
    {13, 1980000}, {14, 512}, {15, 1}, {19, 1}, {21, 131072}, {22, 131072}, {23, 65536}, {24, 16384}, {25, 16384}, {26, 16384},
    {27, 32768}, {28, 32768}, {29, 2048}, {30, 512}, {31, 1}, {36, 2619000}, {37, 5120}, {38, 50 << 20}, {THREADS_PER_SM, 2048},
    {40, 3}, {41, 1}, {42, 32768}, {43, 2048}, {51, 32}, {69, 268435456}, {70, 131072}, {71, 65000}, {72, 2097120}, {75, 9},
    {78, 1}, {79, 1}, {80, 1}, {81, 233472}, {82, 65536}, {83, 1}, {87, 2}, {89, 1}, {90, 1}, {95, 1}, {97, 232448}, {99, 1},
    {102, 1}, {103, 1}, {BLOCKS_PER_SM, 32}, {111, 1024}, {115, 1}, {119, 1}, {MULTICAST_SUPPORTED, 1},
};

API CUresult cuDeviceGetAttribute(int *out, int attribute, CUdevice d)
{
    NEED_DEVICE(d);
    if (!out || attribute < 1)
        return CUDA_INVALID_VALUE;
    *out = attribute == SM_COUNT ? sim_config.gpu[visible[d]].sms : attribute == 33 ? visible[d] + 1 : 0;
    for (unsigned i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].attribute == attribute)
            *out = attributes[i].value;
    return CUDA_SUCCESS;
}

#define ERROR(code, name, text) {code, name, text},
static const struct { CUresult code; const char *name, *text; } errors[] = {
    ERROR(0, "CUDA_SUCCESS", "no error")
    ERROR(1, "CUDA_ERROR_INVALID_VALUE", "invalid argument")
    ERROR(2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
    ERROR(3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error")
    ERROR(100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected")
    ERROR(101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal")
    ERROR(200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid")
    ERROR(201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context")
    ERROR(209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device")
    ERROR(215, "CUDA_ERROR_UNSUPPORTED_LIMIT", "limit is not supported on this architecture")
    ERROR(218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed")
    ERROR(301, "CUDA_ERROR_FILE_NOT_FOUND", "file not found")
    ERROR(400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle")
    ERROR(401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state")
    ERROR(402, "CUDA_ERROR_LOSSY_QUERY", "attempted introspection would be semantically lossy")
    ERROR(500, "CUDA_ERROR_NOT_FOUND", "named symbol not found")
    ERROR(600, "CUDA_ERROR_NOT_READY", "device not ready")
    ERROR(701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch")
    ERROR(704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled")
    ERROR(705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled")
    ERROR(709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed")
    ERROR(712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped")
    ERROR(713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region")
    ERROR(800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted")
    ERROR(801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported")
    ERROR(802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized")
    ERROR(900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing")
    ERROR(901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture")
    ERROR(904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work")
    ERROR(907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream")
    ERROR(999, "CUDA_ERROR_UNKNOWN", "unknown error")
};

static CUresult error_text(CUresult code, bool name, const char **out)
{
    *out = NULL;
    for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            *out = name ? errors[i].name : errors[i].text;
    return *out ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}
API CUresult cuGetErrorName(CUresult code, const char **out) { return error_text(code, true, out); }
API CUresult cuGetErrorString(CUresult code, const char **out) { return error_text(code, false, out); }

/* What is there in every driver, so that programs that link to it load, and is not simulated. */
#define UNSUPPORTED(name) \
    API CUresult name(void) { return CUDA_NOT_SUPPORTED; }
UNSUPPORTED(cuModuleGetTexRef)
UNSUPPORTED(cuModuleGetSurfRef)
UNSUPPORTED(cuSurfRefGetArray)
UNSUPPORTED(cuSurfRefSetArray)
UNSUPPORTED(cuTexRefCreate)
UNSUPPORTED(cuTexRefDestroy)
UNSUPPORTED(cuTexRefGetAddressMode)
UNSUPPORTED(cuTexRefGetAddress_v2)
UNSUPPORTED(cuTexRefGetArray)
UNSUPPORTED(cuTexRefGetFilterMode)
UNSUPPORTED(cuTexRefGetFlags)
UNSUPPORTED(cuTexRefGetFormat)
UNSUPPORTED(cuTexRefSetAddress2D_v3)
UNSUPPORTED(cuTexRefSetAddressMode)
UNSUPPORTED(cuTexRefSetAddress_v2)
UNSUPPORTED(cuTexRefSetArray)
UNSUPPORTED(cuTexRefSetFilterMode)
UNSUPPORTED(cuTexRefSetFlags)
UNSUPPORTED(cuTexRefSetFormat)
UNSUPPORTED(cuLinkCreate_v2)
UNSUPPORTED(cuLinkAddData_v2)
UNSUPPORTED(cuLinkAddFile_v2)
UNSUPPORTED(cuLinkComplete)
UNSUPPORTED(cuLinkDestroy)
UNSUPPORTED(cuParamSetTexRef)
UNSUPPORTED(cuIpcGetEventHandle)
UNSUPPORTED(cuIpcOpenEventHandle)
UNSUPPORTED(cuProfilerInitialize)
