/* NVML's entry points with arbitrary devices, counts, versions and buffers exactly as long as they are said to be, and
 * names that programs look up: no buffer is overrun, and no figure is above the share. */
#include <dlfcn.h>

#include "input.h"
#include "session.h"

int nvmlDeviceGetMemoryInfo(nvmlDevice, nvmlMemoryV1 *), nvmlDeviceGetMemoryInfo_v2(nvmlDevice, nvmlMemoryV2 *);
int nvmlDeviceGetUtilizationRates(nvmlDevice, nvmlUtilization *);
int nvmlDeviceGetComputeRunningProcesses(nvmlDevice, unsigned *, nvmlProcessV1 *);
int nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice, unsigned *, nvmlProcessV2 *);
int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice, unsigned *, nvmlProcessV2 *);
int nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice, unsigned *, void *);
int nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice, unsigned *, void *);
int nvmlDeviceGetAccountingStats(nvmlDevice, unsigned, void *), nvmlDeviceSetPowerManagementLimit(nvmlDevice, unsigned);

static struct region *region;

static void check_memory(const nvmlMemoryV1 *memory) {
    REQUIRE(memory->total <= 201326592 && memory->used <= memory->total && memory->free == memory->total - memory->used);
}

static void ask_memory(struct input *in, nvmlDevice device) {
    nvmlMemoryV1 first;
    nvmlMemoryV2 second = {.version = choose(in, 2) ? sizeof second | 2u << 24 : (unsigned)take(in, 4)};
    bool none = choose(in, 16) == 15;
    if (!nvmlDeviceGetMemoryInfo(device, none ? NULL : &first))
        check_memory(&first);
    if (!nvmlDeviceGetMemoryInfo_v2(device, none ? NULL : &second))
        check_memory(&(nvmlMemoryV1){second.total, second.free, second.used});
}

static void ask_processes(struct input *in, nvmlDevice device) {
    unsigned said = choose(in, 4) ? choose(in, 256) : (unsigned)take(in, 4), count = said, how = choose(in, 5);
    size_t room = (said < 1024 ? said : 1024) * (how ? sizeof(nvmlProcessV2) : sizeof(nvmlProcessV1));
    void *list = choose(in, 16) == 15 ? NULL : malloc(room);
    unsigned *at = choose(in, 16) == 15 ? NULL : &count;
    int rc = how == 0   ? nvmlDeviceGetComputeRunningProcesses(device, at, list)
             : how == 1 ? nvmlDeviceGetComputeRunningProcesses_v2(device, at, list)
             : how == 2 ? nvmlDeviceGetComputeRunningProcesses_v3(device, at, list)
             : how == 3 ? nvmlDeviceGetGraphicsRunningProcesses(device, at, list)
                        : nvmlDeviceGetMPSComputeRunningProcesses_v3(device, at, list);
    REQUIRE(rc != NVML_SUCCESS || (count <= said && count <= REGION_SLOTS));
    free(list);
}

/* Whatever a program looks up, it gets ours or nothing where the name is guarded. */
static void look_up(struct input *in) {
    char name[48];
    size_t length = choose(in, sizeof name);
    for (size_t i = 0; i < length; i++)
        name[i] = (char)take(in, 1);
    name[length] = 0;
    void *how = route_pick(name, choose(in, 2));
    REQUIRE(how && route_pick(NULL, 0) != NULL);
    if (route_guards(name))
        REQUIRE(((__typeof__(&dlsym))how)(RTLD_DEFAULT, name) != fgpu_real_dlsym(dlopen(NVML_LIBRARY, RTLD_LAZY), name)
                || !fgpu_real_dlsym(dlopen(NVML_LIBRARY, RTLD_LAZY), name));
}

static void set_up(void) {
    region = session_region("100.00");
    session_simulate();
    void *driver = dlopen(NVML_LIBRARY, RTLD_NOW);
    int (*init)(void) = driver ? (int (*)(void))(uintptr_t)dlsym(driver, "nvmlInit_v2") : NULL;
    REQUIRE(init && !init() && fgpu_attach());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {data, data + size};
    nvmlUtilization use;
    if (!region)
        set_up();
    memset(region->slot, 0, sizeof region->slot);
    region->high = 0;
    while (in.at < in.end) {
        nvmlDevice device = (nvmlDevice)(uintptr_t)(choose(&in, 8) ? choose(&in, 4) : take(&in, 8));
        unsigned slot = choose(&in, REGION_SLOTS);
        switch (choose(&in, 6)) {
        case 0: /* another process of the session */
            region->slot[slot].pid = choose(&in, 2) ? 1 : (int)take(&in, 4);
            region->slot[slot].used[choose(&in, HOLDERS)] = take_size(&in);
            region->high = choose(&in, 2) ? REGION_SLOTS : (uint32_t)take(&in, 4) % (REGION_SLOTS + 1);
            break;
        case 1: ask_memory(&in, device); break;
        case 2: ask_processes(&in, device); break;
        case 3:
            if (!nvmlDeviceGetUtilizationRates(device, choose(&in, 16) ? &use : NULL))
                REQUIRE(use.gpu <= 100 && use.memory <= 100);
            break;
        case 4: look_up(&in); break;
        default:
            REQUIRE(nvmlDeviceGetAccountingStats(device, (unsigned)take(&in, 4), NULL) == NVML_NOT_SUPPORTED);
            REQUIRE(nvmlDeviceSetPowerManagementLimit(device, (unsigned)take(&in, 4)) == NVML_NO_PERMISSION);
        }
    }
    return 0;
}
