// The only program of the sandbox image: waits for ever, so that a network namespace exists. Freestanding, for Linux.
#if defined(__x86_64__)
#define WAIT "mov $34, %%eax\n\tsyscall" ::: "rax", "rcx", "r11", "memory"  // pause()
#elif defined(__aarch64__)
#define WAIT "mov x8, #73\n\tmov x0, #0\n\tmov x1, #0\n\tmov x2, #0\n\tmov x3, #0\n\tsvc #0" ::: "x0", "x1", "x2", "x3", "x8", "memory"  // ppoll(NULL, 0, NULL, NULL)
#endif
void _start(void) { for (;;) __asm__ volatile(WAIT); }
