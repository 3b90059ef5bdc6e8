/* Says where it is, without any library: no loader, so nothing is preloaded. */
#if defined(__x86_64__)
enum { WRITE = 1, EXIT = 60 };
static long call(long number, long a, const void *b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
enum { WRITE = 64, EXIT = 93 };
static long call(long number, long a, const void *b, long c)
{
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x2 __asm__("x2") = c;
    register const void *x1 __asm__("x1") = b;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}
#endif

void _start(void);
void _start(void)
{
    call(WRITE, 1, "static\n", 7);
    call(EXIT, 0, 0, 0);
}
