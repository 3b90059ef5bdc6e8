/* The driver's functions as a program finds them: each test program looks its entry points up in the way under test. */
#ifndef TEST_DRIVER_H
#define TEST_DRIVER_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/abi.h"

static void *cuda_library;

static void *by_dlsym(const char *name)
{
    return dlsym(cuda_library, name);
}

static void open_cuda(void)
{
    cuda_library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda_library) {
        puts(dlerror());
        exit(1);
    }
}

#define CU(name, types, ...) (((CUresult(*) types)(uintptr_t)by_dlsym(#name))(__VA_ARGS__))

#endif
