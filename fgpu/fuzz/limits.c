/* The limits file: what is accepted gives the same text when it is written again, within the bounds of each field. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../src/fgpu.h"
#include "input.h"

static size_t format(const struct limits *limits, char *out, size_t room) {
    int at = snprintf(out, room, "version=2\npolicy=enforce\nsharing=%s\npinned_bytes=%llu\n",
                      limits->burst ? "burst" : "cap", (unsigned long long)limits->pinned_bytes);
    for (int i = 0; i < limits->count; i++) {
        const struct limit *gpu = &limits->gpu[i];
        at += snprintf(out + at, room - (size_t)at,
                       "dev=%s mem_bytes=%llu sm_percent=%u.%02u phase_ms=%u ctx_bytes=%llu\n", gpu->uuid,
                       (unsigned long long)gpu->mem_bytes, gpu->sm_points / 100, gpu->sm_points % 100, gpu->phase_ms,
                       (unsigned long long)gpu->ctx_bytes);
        REQUIRE(gpu->ctx_bytes < gpu->mem_bytes && gpu->sm_points && gpu->sm_points <= ALL_SMS);
        REQUIRE(strlen(gpu->uuid) == 40 && gpu->phase_ms < 100 && limits_find(limits, gpu->uuid) == i);
    }
    return (size_t)(at + snprintf(out + at, room - (size_t)at, "end\n"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int file = -1;
    static const char path[] = "limits.conf";
    struct limits limits;
    char text[8192];
    if (file < 0) {
        unlink(path);
        file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
    }
    REQUIRE(pwrite(file, data, size, 0) == (ssize_t)size && !ftruncate(file, (off_t)size));
    if (limits_load(path, &limits)) return 0;
    REQUIRE(limits.count > 0 && limits.count <= MAX_GPUS);
    REQUIRE(format(&limits, text, sizeof text) == size && !memcmp(text, data, size));
    return 0;
}
