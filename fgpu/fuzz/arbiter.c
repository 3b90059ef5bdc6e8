/* The arbiter, with two sessions that do what they like: connect, say anything at any pace, hang up, die, come and go.
 * Its counts stay right, it never looks again at once, and a third session that only asks for turns has them. */
#define main arbiter_main
#include "../arbiter/main.c"
#undef main

#include <stdarg.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "input.h"

enum { SESSIONS = 3, SOCKETS = 160, PROCESSES = 6, HONEST = 999 };
#define MS 1000000ull
#define WAIT_NS (1000 * MS) /* for a turn, of a session that has half of a GPU */
#define JUMP_NS (100 * MS)  /* a longer step of time tells nothing of how long anybody waits */

static const char *const gpus[SESSIONS][2] = {{"50.00"}, {"25.00", "100.00"}, {"0.01", "60.00"}};
static struct input *rest;
static uint64_t now, began, turn_at;
static int sockets[SOCKETS], deaths[SOCKETS * 2], pids[SOCKETS * 2], empty, failing;
static bool away[SESSIONS], resized[SESSIONS];

uint64_t clock_now(void) { return now; }
bool system_trusts(unsigned owner) { return (void)owner, true; }
void system_wake(_Atomic uint32_t *word, uint64_t key) { (void)word, (void)key; }

/* Which process it is of, whom the kernel names, and when that ends: by a pipe in place of a pidfd. */
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *size) {
    struct ucred *peer = value;
    (void)fd, (void)level, (void)size;
    REQUIRE(option == SO_PEERCRED);
    peer->pid = rest ? (int)choose(rest, PROCESSES) : HONEST; /* 0: in a namespace that is not below ours */
    return 0;
}

long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
    int ends[2];
    va_list list;
    va_start(list, number);
    int pid = va_arg(list, int);
    va_end(list);
    REQUIRE(number == SYS_pidfd_open);
    if (rest && choose(rest, 8) == 7) return -1;
    int i = 0;
    while (i < SOCKETS * 2 && deaths[i] >= 0)
        i++;
    if (i == SOCKETS * 2 || pipe2(ends, O_CLOEXEC)) return -1;
    deaths[i] = ends[1];
    pids[i] = pid;
    return ends[0];
}

int __real_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags) {
    if (failing) {
        failing--;
        errno = EMFILE;
        return -1;
    }
    return __real_accept4(fd, address, size, flags);
}

static void write_lease(int session, const char *shares[2]) {
    char path[64];
    snprintf(path, sizeof path, "host/s%d/lease.conf", session);
    FILE *out = fopen("lease", "we");
    REQUIRE(out);
    fprintf(out, "version=2\npolicy=enforce\nsharing=%s\npinned_bytes=0\n", session == 1 ? "burst" : "cap");
    for (int i = 0; i < 2 && shares[i]; i++)
        fprintf(out, "dev=GPU-00000000-0000-4000-8000-00000000000%d mem_bytes=1073741824 sm_percent=%s phase_ms=0 ctx_bytes=0\n",
                i, shares[i]);
    fputs("end\n", out);
    fclose(out);
    REQUIRE(!chmod("lease", 0444) && !rename("lease", path));
}

static void set_up(void) {
    char path[64];
    REQUIRE(!system("rm -rf host nobody away && mkdir host nobody away"));
    for (int i = 0; i < SESSIONS; i++) {
        snprintf(path, sizeof path, "host/s%d", i);
        REQUIRE(!mkdir(path, 0755));
        snprintf(path, sizeof path, "host/s%d/socket", i);
        REQUIRE(!mkdir(path, 0755));
        snprintf(path, sizeof path, "host/s%d/grant", i);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        REQUIRE(fd >= 0 && !ftruncate(fd, GRANT_BYTES));
        close(fd);
        write_lease(i, (const char *[2]){gpus[i][0], gpus[i][1]});
    }
    empty = open("nobody", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    now = 1000000000000;
}

static int dial(int session) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "host/s%d/socket/arbiter", session);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void dial_often(int session, unsigned times) {
    for (int i = 0; i < SOCKETS && times; i++)
        if (sockets[i] < 0) {
            sockets[i] = dial(session);
            times--;
        }
}

static void say(int fd, unsigned times) {
    struct grant_state state = {(uint8_t)(choose(rest, 16) ? STATE_VERSION : 0), (uint8_t)choose(rest, 3),
                                (uint8_t)choose(rest, 5), 0};
    for (; times; times--)
        send(fd, &state, sizeof state, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void die(int pid) {
    for (int i = 0; i < SOCKETS * 2; i++)
        if (deaths[i] >= 0 && pids[i] == pid) {
            close(deaths[i]);
            deaths[i] = -1;
        }
}

static void leave_or_return(int session) {
    char here[32], there[32];
    snprintf(here, sizeof here, "host/s%d", session);
    snprintf(there, sizeof there, "away/s%d", session);
    REQUIRE(!(away[session] ? rename(there, here) : rename(here, there)));
    away[session] = !away[session];
}

/* Returns whether the arbiter goes on now. */
static bool act(uint64_t until) {
    static const char *const shares[] = {"0.01", "1.00", "33.33", "99.99"};
    unsigned which = choose(rest, SOCKETS);
    int session = 1 + (int)(which & 1), fd = sockets[which];
    uint8_t text[8];
    uint64_t before = now;
    switch (choose(rest, 12)) {
    case 0: dial_often(session, 1); break;
    case 1: dial_often(session, choose(rest, 100)); break;
    case 2: say(fd, 1); break;
    case 3: say(fd, choose(rest, 200)); break;
    case 4:
        memcpy(text, &(uint64_t){take(rest, 8)}, 8);
        send(fd, text, choose(rest, 9), MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
    case 5:
        if (fd >= 0)
            close(fd);
        sockets[which] = -1;
        break;
    case 6: die((int)choose(rest, PROCESSES)); break;
    case 7: failing = (int)choose(rest, 4); break;
    case 8:
        if (!away[session])
            write_lease(session, (const char *[2]){shares[choose(rest, 4)], shares[choose(rest, 4)]});
        resized[session] = true;
        break;
    case 9: leave_or_return(session); break;
    case 10: now += take(rest, 4); break;
    default: now = until;
    }
    if (now - before > JUMP_NS)
        turn_at = now;
    return choose(rest, 2);
}

static void check_session(const struct session *s) {
    unsigned connections = 0;
    for (const struct connection *c = s->connections; c; c = c->next)
        connections += !c->gone;
    REQUIRE(connections == s->connected && connections <= MAX_CONNECTIONS);
    for (const struct process *p = s->processes; p; p = p->next) {
        unsigned its = 0;
        for (const struct connection *c = s->connections; c; c = c->next)
            its += !c->gone && c->process == p;
        REQUIRE(its == p->connections && p->gone == !its);
    }
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        const struct share *share = &s->share[gpu];
        const struct member *m = &share->member;
        unsigned busy = 0, wants = 0;
        for (const struct connection *c = s->connections; c; c = c->next) {
            busy += !c->gone && c->flags[gpu] & STATE_BUSY;
            wants += !c->gone && c->flags[gpu] & STATE_WANTS;
            REQUIRE(!c->flags[gpu] || gpu < s->limits.count);
        }
        if (!share->queue)
            continue;
        REQUIRE(busy == m->busy && wants == m->wants);
        REQUIRE(!m->until == (share->queue->holder != m) && s->page->gpu[gpu].until == m->until);
        REQUIRE(m->charged_ns <= now - began && m->unheld_ns <= m->charged_ns);
        REQUIRE(m->bucket_ns <= (int64_t)(1000 * MS));
    }
}

static void check(uint64_t until) {
    for (const struct session *s = arbiter.sessions; s; s = s->next) {
        check_session(s);
        if (!strcmp(s->name, "s0") && s->share[0].member.until)
            turn_at = now;
    }
    REQUIRE(until > now);
    REQUIRE(now - turn_at < WAIT_NS);
}

int system_wait(int epoll, struct epoll_event *events, int room, uint64_t until) {
    check(until);
    while (rest->at < rest->end && !act(until)) {
    }
    ended = rest->at >= rest->end;
    return epoll_wait(epoll, events, room, 0);
}

static int first_free(void) {
    int fd = dup(empty);
    close(fd);
    return fd;
}

/* The third session's process, which is there before the others, and asks. */
static int ask_for_turns(void) {
    const struct grant_state state = {STATE_VERSION, 0, STATE_WANTS, 0};
    int fd = dial(0);
    rest = NULL;
    for (struct session *s = arbiter.sessions; s; s = s->next)
        if (!strcmp(s->name, "s0"))
            connection_accept(s, now);
    REQUIRE(send(fd, &state, sizeof state, 0) == sizeof state);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {data, data + size};
    if (!empty)
        set_up();
    memset(sockets, -1, sizeof sockets);
    memset(deaths, -1, sizeof deaths);
    failing = 0;
    int lowest = first_free();
    began = turn_at = now;
    arbiter = (struct arbiter){.folder = open("host", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    arbiter.epoll = epoll_create1(EPOLL_CLOEXEC);
    arbiter.descriptors = choose(&in, 2) ? 120 : 4096;
    sessions_scan(now);
    int honest = ask_for_turns();
    rest = &in;
    ended = 0;
    serve();
    for (int i = 0; i < SESSIONS; i++) {
        if (away[i])
            leave_or_return(i);
        if (resized[i])
            write_lease(i, (const char *[2]){gpus[i][0], gpus[i][1]});
        resized[i] = false;
    }
    close(arbiter.folder);
    arbiter.folder = empty;
    sessions_scan(now);
    REQUIRE(!arbiter.sessions && !arbiter.session_count);
    close(arbiter.epoll);
    close(honest);
    for (int i = 0; i < SOCKETS; i++)
        if (sockets[i] >= 0)
            close(sockets[i]);
    for (int pid = 0; pid < HONEST + 1; pid++)
        die(pid);
    REQUIRE(first_free() == lowest);
    return 0;
}
