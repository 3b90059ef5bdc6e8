/* A session that launches nothing and lies to the arbiter, on the simulated clock: liar <pattern> <period ms> <for ms>.
 * `toggle` says that it is busy and that it is not, by turns; `renew` the same at once; `busy` that it always is; `hold` the
 * same from its first turn on, which it has after a pause; `overrun` that it wants to launch, and is busy for a whole period once it has had a turn; `wake` that it comes
 * back from a pause, and launches nothing. */
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <fcntl.h>
#include <unistd.h>

#include "driver.h"
#include "../../src/grant.h"

static int line;

static uint64_t now(void) { return ((uint64_t(*)(void))(uintptr_t)by_dlsym("fgpuSimNow"))(); }

static void rest(uint64_t ns) { ((void (*)(uint64_t))(uintptr_t)by_dlsym("fgpuSimSleepUntil"))(now() + ns); }

static void say(uint8_t flags)
{
    struct grant_state state = {STATE_VERSION, 0, flags, 0};
    if (send(line, &state, sizeof state, MSG_NOSIGNAL) != sizeof state)
        exit(3);
    ((void (*)(void))(uintptr_t)by_dlsym("fgpuSimKnock"))();
}

static const struct grant_page *grant(void)
{
    int fd = open(getenv("FGPU_GRANT"), O_RDONLY);
    void *page = mmap(NULL, sizeof(struct grant_page), PROT_READ, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? exit(4), NULL : page;
}

static void step(const char *pattern, uint64_t period, const struct grant_page *page)
{
    if (!strcmp(pattern, "overrun")) {
        say(STATE_WANTS);
        while (!atomic_load(&page->gpu[0].until))
            rest(1000000);
        say(STATE_BUSY);
        rest(period);
        say(0);
        return;
    }
    if (!strcmp(pattern, "wake")) {
        say(STATE_WANTS);
        while (!atomic_load(&page->gpu[0].until))
            rest(100000);
        say(0);
        rest(period);
        return;
    }
    if (!strcmp(pattern, "renew"))
        say(0);
    say(STATE_BUSY | (!strcmp(pattern, "hold") ? STATE_WANTS : 0));
    rest(period / 2);
    if (!strcmp(pattern, "toggle"))
        say(0);
    rest(period / 2);
}

int main(int argc, char **argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    open_cuda();
    if (argc < 4 || ((int (*)(void))(uintptr_t)by_dlsym("fgpuSimJoin"))())
        return 1;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", getenv("FGPU_SOCKET"));
    line = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (connect(line, (struct sockaddr *)&address, sizeof address))
        return 2;
    uint64_t period = strtoull(argv[2], NULL, 10) * 1000000, end = now() + strtoull(argv[3], NULL, 10) * 1000000;
    if (!strcmp(argv[1], "hold"))
        rest(500000000);
    while (now() < end)
        step(argv[1], period, grant());
    return 0;
}
