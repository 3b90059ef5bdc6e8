/* An interposer of the tenant's own, loaded after the hook: RTLD_NEXT must mean "after me", not "after the hook". */
#include <dlfcn.h>
#include <stdint.h>
#include <sys/types.h>

__attribute__((visibility("default"))) pid_t getppid(void)
{
    pid_t (*real)(void) = (pid_t(*)(void))(uintptr_t)dlsym(RTLD_NEXT, "getppid");
    return real == getppid ? -1 : -real();
}
