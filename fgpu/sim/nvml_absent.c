/* What the simulated GPU does not have: every function of NVML that nvml.c does not define. */
#include "../src/abi.h"
#include "functions.h" /* NVML_FUNCTIONS; made from functions.tsv */
#include "state.h"

enum { NVML_UNINITIALIZED = 1 };

#define ABSENT(name) \
    __attribute__((weak, visibility("default"))) int name(void); \
    __attribute__((weak, visibility("default"))) int name(void) { return sim ? NVML_NOT_SUPPORTED : NVML_UNINITIALIZED; }
NVML_FUNCTIONS(ABSENT)
ABSENT(nvmlDeviceQueryProcessLoad_v9) /* of a driver to come */
