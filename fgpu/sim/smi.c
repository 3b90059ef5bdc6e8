/* A small nvidia-smi for simulated GPUs. Like the real one it finds NVML with dlopen and dlsym, so what the hook shows
 * in it is what the hook would show in the real one. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../src/abi.h"

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci;
enum { MAX_PROCESSES = 256 };

static void *nvml;

static void *entry(const char *name)
{
    void *found = dlsym(nvml, name);
    if (!found) {
        printf("Failed to find %s in NVML.\n", name);
        exit(12);
    }
    return found;
}

#define ASK(name, types, ...) (((int(*) types)(uintptr_t)entry(#name))(__VA_ARGS__))

static nvmlDevice device_at(unsigned i)
{
    nvmlDevice device = NULL;
    ASK(nvmlDeviceGetHandleByIndex_v2, (unsigned, nvmlDevice *), i, &device);
    return device;
}

static int text_of(nvmlDevice d, const char *which, char *out, unsigned room)
{
    return strcmp(which, "name") == 0 ? ASK(nvmlDeviceGetName, (nvmlDevice, char *, unsigned), d, out, room)
                                      : ASK(nvmlDeviceGetUUID, (nvmlDevice, char *, unsigned), d, out, room);
}

static int memory_of(nvmlDevice d, nvmlMemoryV2 *out)
{
    out->version = sizeof *out | 2u << 24;
    return ASK(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice, nvmlMemoryV2 *), d, out);
}

static void list_devices(unsigned count)
{
    char name[96], uuid[96];
    for (unsigned i = 0; i < count; i++) {
        text_of(device_at(i), "name", name, sizeof name);
        text_of(device_at(i), "uuid", uuid, sizeof uuid);
        printf("GPU %u: %s (UUID: %s)\n", i, name, uuid);
    }
}

static bool csv_header, csv_units;

static void number(char *out, size_t room, int rc, unsigned long long value, const char *unit)
{
    if (rc)
        snprintf(out, room, "[%s]", rc == NVML_NOT_SUPPORTED ? "N/A" : "Insufficient Permissions");
    else
        snprintf(out, room, "%llu%s%s", value, csv_units && *unit ? " " : "", csv_units ? unit : "");
}

/* One value of --query-gpu; false for a field that is not known. */
static bool field(unsigned i, unsigned count, const char *name, char *out, size_t room)
{
    nvmlDevice d = device_at(i);
    nvmlMemoryV2 memory = {0};
    nvmlUtilization load = {0, 0};
    unsigned value = 0;
    pci where;
    if (!strcmp(name, "name") || !strcmp(name, "gpu_name"))
        text_of(d, "name", out, (unsigned)room);
    else if (!strcmp(name, "uuid") || !strcmp(name, "gpu_uuid"))
        text_of(d, "uuid", out, (unsigned)room);
    else if (!strcmp(name, "index"))
        snprintf(out, room, "%u", i);
    else if (!strcmp(name, "count"))
        snprintf(out, room, "%u", count);
    else if (!strcmp(name, "driver_version"))
        ASK(nvmlSystemGetDriverVersion, (char *, unsigned), out, (unsigned)room);
    else if (!strcmp(name, "pci.bus_id") || !strcmp(name, "gpu_bus_id"))
        ASK(nvmlDeviceGetPciInfo_v3, (nvmlDevice, pci *), d, &where), snprintf(out, room, "%s", where.bus_id);
    else if (!strcmp(name, "memory.total"))
        number(out, room, memory_of(d, &memory), memory.total >> 20, "MiB");
    else if (!strcmp(name, "memory.used"))
        number(out, room, memory_of(d, &memory), memory.used >> 20, "MiB");
    else if (!strcmp(name, "memory.free"))
        number(out, room, memory_of(d, &memory), memory.free >> 20, "MiB");
    else if (!strcmp(name, "utilization.gpu"))
        number(out, room, ASK(nvmlDeviceGetUtilizationRates, (nvmlDevice, nvmlUtilization *), d, &load), load.gpu, "%");
    else if (!strcmp(name, "utilization.memory"))
        number(out, room, ASK(nvmlDeviceGetUtilizationRates, (nvmlDevice, nvmlUtilization *), d, &load), load.memory, "%");
    else if (!strcmp(name, "temperature.gpu"))
        number(out, room, ASK(nvmlDeviceGetTemperature, (nvmlDevice, int, unsigned *), d, 0, &value), value, "");
    else if (!strcmp(name, "power.draw"))
        number(out, room, ASK(nvmlDeviceGetPowerUsage, (nvmlDevice, unsigned *), d, &value), value / 1000, "W");
    else
        return false;
    return true;
}

static const char *unit_of(const char *name)
{
    return !csv_units ? "" : !strncmp(name, "memory.", 7) ? " [MiB]" : !strncmp(name, "utilization.", 12) ? " [%]"
           : !strcmp(name, "power.draw") ? " [W]" : "";
}

static int query(unsigned count, const char *names)
{
    char list[512], value[128], *rest;
    for (int row = csv_header ? -1 : 0; row < (int)count; row++) {
        snprintf(list, sizeof list, "%s", names);
        const char *separator = "";
        for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest), separator = ", ") {
            name += *name == ' ';
            if (!field(row < 0 ? 0 : (unsigned)row, count, name, value, sizeof value)) {
                printf("Field \"%s\" is not a valid field to query.\n", name);
                return 2;
            }
            printf("%s%s%s", separator, row < 0 ? name : value, row < 0 ? unit_of(name) : "");
        }
        printf("\n");
    }
    return 0;
}

static void row(const char *format, ...)
{
    char text[128];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("| %-87.87s |\n", text);
}

static const char rule[] = "+-----------------------------------------------------------------------------------------+";

static void print_gpu(unsigned i, unsigned count)
{
    char name[64] = "", bus[32] = "", used[32], total[32], load[32], heat[32], memory[72];
    csv_units = false;
    field(i, count, "name", name, sizeof name);
    field(i, count, "pci.bus_id", bus, sizeof bus);
    field(i, count, "memory.used", used, sizeof used);
    field(i, count, "memory.total", total, sizeof total);
    field(i, count, "utilization.gpu", load, sizeof load);
    field(i, count, "temperature.gpu", heat, sizeof heat);
    if (used[0] == '[')
        snprintf(memory, sizeof memory, "%s", used);
    else
        snprintf(memory, sizeof memory, "%sMiB / %sMiB", used, total);
    row("%3u  %-34.34s %-17s", i, name, bus);
    row("     %4sC   %26.26s   %4s%s", heat, memory, load, load[0] == '[' ? "" : "%");
}

static void print_processes(unsigned count)
{
    nvmlProcessV2 list[MAX_PROCESSES];
    char path[32], command[64];
    bool any = false;
    for (unsigned i = 0; i < count; i++) {
        unsigned found = MAX_PROCESSES;
        if (ASK(nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice, unsigned *, nvmlProcessV2 *), device_at(i), &found, list))
            continue;
        for (unsigned p = 0; p < found; p++) {
            snprintf(path, sizeof path, "/proc/%u/comm", list[p].pid);
            FILE *file = fopen(path, "re");
            if (!file || !fgets(command, sizeof command, file))
                strcpy(command, "-");
            if (file)
                fclose(file);
            command[strcspn(command, "\n")] = 0;
            row("%4u %10u   C   %-44.44s %9lluMiB", i, list[p].pid, command, list[p].used >> 20);
            any = true;
        }
    }
    if (!any)
        row(" No running processes found");
}

static void table(unsigned count)
{
    char driver[64] = "", when[64];
    int cuda = 0;
    time_t now = time(NULL);
    strftime(when, sizeof when, "%a %b %e %H:%M:%S %Y", localtime(&now));
    ASK(nvmlSystemGetDriverVersion, (char *, unsigned), driver, sizeof driver);
    ASK(nvmlSystemGetCudaDriverVersion_v2, (int *), &cuda);
    printf("%s\nSIMULATED GPU: no NVIDIA hardware or software is behind these figures.\n%s\n", when, rule);
    row("NVIDIA-SMI simulated       Driver Version: %-18.18s CUDA Version: %d.%d", driver, cuda / 1000, cuda % 1000 / 10);
    printf("%s\n", rule);
    row("GPU  Name                               Bus-Id");
    row("     Temp                 Memory-Usage   GPU-Util");
    printf("%s\n", rule);
    for (unsigned i = 0; i < count; i++)
        print_gpu(i, count);
    printf("%s\n\n%s\n", rule, rule);
    row("Processes:");
    row(" GPU        PID   Type Process name                                  GPU Memory");
    printf("%s\n", rule);
    print_processes(count);
    printf("%s\n", rule);
}

int main(int argc, char **argv)
{
    unsigned count = 0;
    const char *names = NULL;
    bool list = false;
    csv_header = csv_units = true;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-L") || !strcmp(argv[i], "--list-gpus"))
            list = true;
        else if (!strncmp(argv[i], "--query-gpu=", 12))
            names = argv[i] + 12;
        else if (!strncmp(argv[i], "--format=csv", 12)) {
            csv_header = !strstr(argv[i], "noheader");
            csv_units = !strstr(argv[i], "nounits");
        } else {
            printf("The simulated nvidia-smi knows -L, --query-gpu=<fields> and --format=csv[,noheader][,nounits].\n");
            return 2;
        }
    }
    nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!nvml || ASK(nvmlInitWithFlags, (unsigned), 0) || ASK(nvmlDeviceGetCount_v2, (unsigned *), &count)) {
        printf("NVIDIA-SMI (simulated) has failed because it couldn't communicate with the simulated driver.\n");
        return 9;
    }
    if (list)
        list_devices(count);
    else if (names)
        return query(count, names);
    else
        table(count);
    return 0;
}
