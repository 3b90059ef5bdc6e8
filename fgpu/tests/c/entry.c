/* What an image starts with: has a child, as a shell would, and waits until it is killed. */
#include <signal.h>
#include <unistd.h>

int main(void)
{
    signal(SIGCHLD, SIG_IGN);
    if (fork() >= 0)
        for (;;)
            pause();
    return 1;
}
