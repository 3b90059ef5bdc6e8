/* Prints its parent's pid, through whatever libraries stand between it and libc. */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    printf("%d\n", getppid());
    return 0;
}
