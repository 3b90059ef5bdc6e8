/* This process and the arbiter of its host. The arbiter writes on a page when the session may launch; the process tells
 * it, by a socket, whether it has work in flight and wants to launch. Without an arbiter, or with one that has shown no
 * sign of life for 250 ms, the session's own budget in the region decides. */
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

static const struct grant_page *page; /* the same for a child of fork */
static uint64_t page_key;
PER_PROCESS static struct {
    int fd;
    bool connected;
    ino_t inode; /* the program may close all its files, and open others */
} wire;
PER_PROCESS static uint64_t tried, epoch;
PER_PROCESS static uint8_t told[MAX_GPUS];

static bool map_page(void) {
    struct stat info;
    if (page) return true;
    int fd = open(system_grant_path(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return false;
    bool good = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size >= (off_t)sizeof *page;
    void *map = good ? mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED) return false;
    page_key = info.st_ino << 8;
    page = map;
    return true;
}

static bool is_ours(void) {
    struct stat info;
    return wire.connected && fstat(wire.fd, &info) == 0 && S_ISSOCK(info.st_mode) && info.st_ino == wire.inode;
}

static void hang_up(void) {
    if (is_ours())
        close(wire.fd);
    wire.connected = false;
}

static void dial(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat info;
    const char *path = system_socket_path();
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
    return map_page() && atomic_load_explicit(&page->magic, memory_order_acquire) == GRANT_MAGIC
           && page->version == GRANT_VERSION
           && now < atomic_load_explicit(&page->beat, memory_order_acquire) + GRANT_STALE_NS;
}

bool turn_is_governed(uint64_t now) {
    if (!wire.connected && tried && now - tried < RETRY_NS) return false;
    bool alive = is_alive(now);
    if (wire.connected && (!alive || atomic_load_explicit(&page->epoch, memory_order_acquire) != epoch))
        hang_up();
    if (wire.connected) return true;
    tried = now;
    if (alive)
        dial();
    return wire.connected;
}

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
