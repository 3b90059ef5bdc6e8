/* The processes of sessions, and their connections, by which each says of each GPU whether something may be in flight
 * and whether it wants to launch. A process can lie about itself alone. What it has in flight counts until it says that
 * this is done, or is dead: not until its connection is closed, which it can do at any time.
 *
 * A session has a few connections. Where it has as many as it may, one that has nothing to say makes room for the next:
 * its process connects anew when it has. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arbiter.h"

enum { MESSAGES_AT_ONCE = 64 }; /* the others of a flood wait until everybody else was heard */
enum { LEAST_CONNECTIONS = 4, FEW_SESSIONS = 16 };
static const uint64_t FORGIVE_NS = 1000000000; /* after a hang-up of a process that lives on */
#define EACH_SESSION(s) (struct session *s = arbiter.sessions; s; s = s->next)
#define EACH_CONNECTION(c, of) (struct connection *c = (of)->connections; c; c = c->next)

bool watch(int fd, struct source *source) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};
    return epoll_ctl(arbiter.epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void set_flags(struct connection *connection, int gpu, uint8_t flags, uint64_t now) {
    struct share *share = &connection->session->share[gpu];
    struct member *member = &share->member;
    uint8_t before = connection->flags[gpu];
    connection->flags[gpu] = flags;
    if (!share->queue || flags == before) return;
    unsigned busy = member->busy - !!(before & STATE_BUSY) + !!(flags & STATE_BUSY);
    unsigned wants = member->wants - !!(before & STATE_WANTS) + !!(flags & STATE_WANTS);
    queue_change(share->queue, member, busy, wants, now);
}

static bool is_idle(const struct connection *connection) {
    unsigned all = 0;
    for (int i = 0; i < MAX_GPUS; i++)
        all |= connection->flags[i];
    return !all;
}

static void drop(struct connection *connection, uint64_t now) {
    struct process *process = connection->process;
    if (connection->gone) return;
    connection->gone = true;
    connection->session->connected--;
    for (int i = 0; i < MAX_GPUS; i++)
        set_flags(connection, i, 0, now);
    if (connection->socket >= 0)
        close(connection->socket);
    process->gone = --process->connections == 0;
    if (process->gone && process->pidfd >= 0)
        close(process->pidfd);
}

/* Whether the session may have another connection; one of its own that is idle, the longest, is closed for it. */
static bool has_room(struct session *session, int fd, uint64_t now) {
    uint64_t fair = arbiter.descriptors / 2 / most(arbiter.session_count, FEW_SESSIONS); /* each has a pidfd at worst */
    struct connection *idlest = NULL;
    if ((unsigned)fd >= arbiter.descriptors) return false;
    if (session->connected < least(MAX_CONNECTIONS, most(fair, LEAST_CONNECTIONS))) return true;
    for EACH_CONNECTION(c, session)
        if (!c->gone && is_idle(c) && (!idlest || c->heard < idlest->heard))
            idlest = c;
    if (idlest)
        drop(idlest, now);
    return idlest != NULL;
}

/* The process of that pid; 0 is one in a namespace that is not below ours. NULL if its end could not be seen. */
static struct process *process_of(struct session *session, int pid) {
    for (struct process *p = session->processes; p; p = p->next)
        if (pid > 0 && p->pid == pid && !p->gone) return p;
    struct process *process = calloc(1, sizeof *process);
    if (!process) return NULL;
    *process = (struct process){.next = session->processes, .session = session, .pid = pid, .pidfd = -1};
    process->death = (struct source){SOURCE_DEATH, process};
    process->pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (pid > 0 && (process->pidfd < 0 || !watch(process->pidfd, &process->death))) {
        if (process->pidfd >= 0)
            close(process->pidfd);
        free(process);
        return NULL;
    }
    return session->processes = process;
}

/* It has connected anew: what its last connection left in flight, it will say itself. */
static void replace(struct process *process, uint64_t now) {
    for EACH_CONNECTION(c, process->session)
        if (c->process == process && c->socket < 0)
            drop(c, now);
}

/* Make the connection, and say so: until then a process does not know whether it is heard. */
static bool connect_to(struct session *session, int fd, int pid, uint64_t now) {
    const struct grant_state welcome = {STATE_VERSION, 0, 0, 0};
    struct connection *connection = calloc(1, sizeof *connection);
    struct process *process = connection ? process_of(session, pid) : NULL;
    if (!process) {
        free(connection);
        return false;
    }
    *connection = (struct connection){.next = session->connections, .session = session, .process = process};
    connection->socket = fd;
    connection->heard = now;
    connection->source = (struct source){SOURCE_CONNECTION, connection};
    session->connections = connection;
    session->connected++;
    process->connections++;
    if (watch(fd, &connection->source) && send(fd, &welcome, sizeof welcome, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        replace(process, now);
    else
        drop(connection, now);
    return true;
}

/* Where none can be accepted, as without descriptors, epoll would report the caller again and again. */
static void turn_deaf(struct session *session) {
    struct epoll_event event = {.events = 0, .data.ptr = &session->source};
    session->is_deaf = epoll_ctl(arbiter.epoll, EPOLL_CTL_MOD, session->socket, &event) == 0;
}

void connection_accept(struct session *session, uint64_t now) {
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    int fd = accept4(session->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            turn_deaf(session);
        return;
    }
    bool good = has_room(session, fd, now) && !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)
                && connect_to(session, fd, peer.pid, now);
    if (good) return;
    close(fd);
    session->refused++;
}

/* What it has in flight counts for a while: it can hang up at any time. */
static void hang_up(struct connection *connection, uint64_t now) {
    close(connection->socket);
    connection->socket = -1;
    connection->hung_up = now;
    for (int i = 0; i < MAX_GPUS; i++)
        set_flags(connection, i, connection->flags[i] & STATE_BUSY, now);
    if (is_idle(connection) || connection->process->pidfd < 0)
        drop(connection, now);
}

void connection_read(struct connection *connection, uint64_t now) {
    struct grant_state state;
    for (int i = 0; i < MESSAGES_AT_ONCE && connection->socket >= 0; i++) {
        ssize_t size = recv(connection->socket, &state, sizeof state, MSG_DONTWAIT);
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
        int gpus = connection->session->limits.count;
        connection->heard = now;
        if (size == sizeof state && state.version == STATE_VERSION && state.gpu < gpus)
            set_flags(connection, state.gpu, state.flags & (STATE_BUSY | STATE_WANTS), now);
        else
            hang_up(connection, now);
    }
}

void process_died(struct process *process, uint64_t now) {
    for EACH_CONNECTION(c, process->session)
        if (c->process == process)
            drop(c, now);
}

void processes_expire(uint64_t now) {
    for EACH_SESSION(session)
        for EACH_CONNECTION(c, session)
            if (!c->gone && c->socket < 0 && now - c->hung_up >= FORGIVE_NS)
                drop(c, now);
}

static void free_gone(struct session *session) {
    for (struct connection **at = &session->connections, *c; (c = *at);)
        if (c->gone) {
            *at = c->next;
            free(c);
        } else {
            at = &c->next;
        }
    for (struct process **at = &session->processes, *p; (p = *at);)
        if (p->gone) {
            *at = p->next;
            free(p);
        } else {
            at = &p->next;
        }
}

void processes_free(void) {
    for EACH_SESSION(session)
        free_gone(session);
}

void processes_drop(struct session *session, uint64_t now) {
    for EACH_CONNECTION(c, session)
        drop(c, now);
    free_gone(session);
}
