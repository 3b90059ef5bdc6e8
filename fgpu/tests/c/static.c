/* Says where it is, without any library: no loader, so nothing is preloaded. */
static long call(long number, long a, const void *b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

void _start(void);
void _start(void)
{
    call(1, 1, "static\n", 7); /* write */
    call(60, 0, 0, 0);         /* exit */
}
