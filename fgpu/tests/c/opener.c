/* Opens a library in one of the ways that there are, and prints what becomes of its allocations:
 * opener plain|deep|new <library> <bytes>... */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    void *library = argc < 3                    ? NULL
                    : !strcmp(argv[1], "new")   ? dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW)
                    : !strcmp(argv[1], "deep")  ? dlopen(argv[2], RTLD_NOW | RTLD_DEEPBIND)
                                                : dlopen(argv[2], RTLD_NOW);
    void *function = library ? dlsym(library, "plugin_allocate") : NULL;
    if (!function) {
        puts(dlerror());
        return 1;
    }
    for (int i = 3; i < argc; i++)
        printf("%d ", ((int (*)(unsigned long long))(uintptr_t)function)(strtoull(argv[i], NULL, 10)));
    puts("");
    return 0;
}
