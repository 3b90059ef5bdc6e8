#include "session.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "input.h"

extern char __start_fgpu_process[] __attribute__((visibility("hidden")));
extern char __stop_fgpu_process[] __attribute__((visibility("hidden")));

void session_forget(void) {
    memset(__start_fgpu_process, 0, (size_t)(__stop_fgpu_process - __start_fgpu_process));
}

static void put(const char *name, unsigned mode, const char *format, ...) {
    va_list list;
    char text[1024];
    va_start(list, format);
    int size = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    unlink(name);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, mode);
    const struct timespec settled[2] = {{0, 0}, {1, 0}}; /* the hook reads a file of the last second again and again */
    REQUIRE(fd >= 0 && write(fd, text, (size_t)size) == size && !futimens(fd, settled));
    close(fd);
}

#define UUID(n) "GPU-00000000-0000-4000-8000-00000000000" n

struct region *session_region(const char *second_share) {
    put("limits.conf", 0444,
        "version=2\npolicy=enforce\nsharing=cap\npinned_bytes=268435456\n"
        "dev=" UUID("1") " mem_bytes=201326592 sm_percent=25.00 phase_ms=0 ctx_bytes=0\n"
        "dev=" UUID("2") " mem_bytes=67108864 sm_percent=%s phase_ms=99 ctx_bytes=0\nend\n", second_share);
    put("region", 0666, "");
    int fd = open("region", O_RDWR | O_CLOEXEC);
    REQUIRE(!ftruncate(fd, REGION_BYTES));
    struct region *region = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(region != MAP_FAILED);
    return region;
}

void session_simulate(void) {
    put("gpus.conf", 0644,
        "driver simulated\ncuda 12.8\ngpu " UUID("1") " memory_mib=8192 sms=64 name=one\n"
        "gpu " UUID("2") " memory_mib=8192 sms=64 name=two\n");
    unlink("state");
    setenv("FGPU_SIM_CONFIG", "gpus.conf", 1);
    setenv("FGPU_SIM_STATE", "state", 1);
    setenv("FGPU_SIM_CLOCK", "virtual", 1);
    fuzz_simulated = true;
}
