/* This process and the arbiter of its host. The arbiter writes on a page when the session may launch; the process tells
 * it, by a socket, whether it has work in flight and wants to launch. Without an arbiter, or with one that has shown no
 * sign of life for 250 ms, the session's own budget in the region decides.
 *
 * Beside an arbiter that lives, the budget would come on top of the session's turns. So a process waits until the
 * arbiter has said that it has its connection. It has the budget only after 5 s without that word, while the arbiter
 * is in touch with no other process of the session either. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fgpu.h"
#include "grant.h"

#define RETRY_NS 1000000000ull
#define HEAR_NS 100000000ull     /* how often it is seen whether the arbiter has hung up */
#define LEAST_PAUSE_NS 50000ull  /* until it has said its word, at first */
#define SILENCE_NS 5000000000ull /* of an arbiter that lives, until the budget decides */

static const struct grant_page *page; /* the same for a child of fork */
static uint64_t page_key;
PER_PROCESS static struct {
    int fd;
    bool connected, heard; /* `heard`: the arbiter has said that it has us */
    ino_t inode; /* the program may close all its files, and open others */
} wire;
PER_PROCESS static uint64_t tried, epoch, listened;
PER_PROCESS static uint64_t asked, silent_since; /* when last, and since when it has been without an arbiter's word */
PER_PROCESS static bool noted;
PER_PROCESS static uint8_t told[MAX_GPUS];

void turn_attach(void) {
    struct stat info;
    int fd = open(system_grant_path(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    bool good = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size >= (off_t)sizeof *page;
    void *map = good ? mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED) return;
    page_key = info.st_ino << 8;
    page = map;
}

static bool is_ours(void) {
    struct stat info;
    return wire.connected && fstat(wire.fd, &info) == 0 && S_ISSOCK(info.st_mode) && info.st_ino == wire.inode;
}

static void hang_up(void) {
    if (is_ours())
        close(wire.fd);
    wire.connected = wire.heard = false;
}

static void dial(uint64_t now) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat info;
    const char *path = system_socket_path();
    tried = listened = now;
    int fd = path ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (fd < 0) return;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 200); /* out of the way of programs that count on low numbers */
    if (high >= 0)
        close(fd);
    wire.fd = high >= 0 ? high : fd;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    wire.connected = connect(wire.fd, (struct sockaddr *)&address, sizeof address) == 0 && fstat(wire.fd, &info) == 0;
    if (!wire.connected)
        close(wire.fd);
    else
        wire.inode = info.st_ino;
    memset(told, 0, sizeof told);
    epoch = atomic_load_explicit(&page->epoch, memory_order_acquire);
    system_sent();
}

/* Fresh, and of an arbiter that we know: a magic number that it wrote there, and a recent sign of life. */
static bool is_alive(uint64_t now) {
    return page && atomic_load_explicit(&page->magic, memory_order_acquire) == GRANT_MAGIC
           && page->version == GRANT_VERSION
           && now < atomic_load_explicit(&page->beat, memory_order_acquire) + GRANT_STALE_NS;
}

/* Its only word is the first one. It hangs up where the session has too many connections. */
static void hear(uint64_t now) {
    struct grant_state word;
    listened = now;
    ssize_t size = is_ours() ? recv(wire.fd, &word, sizeof word, MSG_DONTWAIT) : 0;
    if (size > 0)
        wire.heard = true;
    else if (size == 0 || (errno != EAGAIN && errno != EINTR))
        hang_up();
    if (wire.heard)
        region_governed(now);
}

/* Whether the budget decides beside an arbiter that is alive. */
static bool is_on_budget(bool alive, uint64_t now) {
    if (!alive || wire.heard || now - asked > RETRY_NS) /* or this process had nothing to launch for a while */
        silent_since = now;
    asked = now;
    bool is_silent = now - silent_since >= SILENCE_NS, are_others = now - region_governed_at(now) < SILENCE_NS;
    if (is_silent && !noted)
        region_note(are_others ? "it waits, as the arbiter of this host takes no more connections of this session"
                               : "its GPU time is by a budget of its own, as the arbiter of this host is silent");
    noted = is_silent;
    return is_silent && !are_others;
}

bool turn_is_governed(uint64_t now) {
    if (!page) return false;
    bool alive = is_alive(now);
    if (wire.connected && (!alive || atomic_load_explicit(&page->epoch, memory_order_acquire) != epoch))
        hang_up();
    if (wire.connected && (!wire.heard || now - listened >= HEAR_NS))
        hear(now);
    if (alive && !wire.connected && (!tried || now - tried >= RETRY_NS))
        dial(now);
    return !is_on_budget(alive, now) && alive;
}

uint64_t turn_pause(uint64_t now) { return wire.heard ? 0 : least(most(now - tried, LEAST_PAUSE_NS), HEAR_NS); }

bool turn_allows(int gpu, uint64_t at) {
    return at < atomic_load_explicit(&page->gpu[gpu].until, memory_order_acquire);
}

uint32_t turn_word(int gpu) { return page ? atomic_load_explicit(&page->gpu[gpu].word, memory_order_acquire) : 0; }

void turn_sleep(int gpu, uint32_t word, uint64_t until) {
    system_sleep_on(&page->gpu[gpu].word, word, until, page_key + (uint64_t)gpu);
}

/* What could not be sent now is sent with the next look: the arbiter is busy with others. */
void turn_tell(int gpu, unsigned flags) {
    struct grant_state state = {STATE_VERSION, (uint8_t)gpu, (uint8_t)flags, 0};
    if (told[gpu] == flags || !wire.connected) return;
    bool sent = is_ours() && send(wire.fd, &state, sizeof state, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof state;
    if (sent)
        told[gpu] = (uint8_t)flags;
    else if (!is_ours() || (errno != EAGAIN && errno != EINTR))
        hang_up();
    if (sent)
        system_sent();
}

unsigned turn_told(int gpu) { return wire.connected ? told[gpu] : 0; }

/* The parent's connection is not ours, and the arbiter sees its end only when nobody has it open. */
void turn_in_child(void) { hang_up(); }
