/* The processes of sessions: each has one connection, by which it says of each GPU whether something may be in flight
 * and whether it wants to launch. A process can lie about itself alone. What it has in flight counts until it says that
 * this is done, or is dead: not until its connection is closed, which it can do at any time. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arbiter.h"

enum { MESSAGES_AT_ONCE = 64 }; /* the others of a flood wait until everybody else was heard */

static void watch(int fd, struct source *source) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};
    epoll_ctl(arbiter.epoll, EPOLL_CTL_ADD, fd, &event);
}

static const uint64_t FORGIVE_NS = 1000000000; /* after a hang-up of a process that lives on */

/* It has connected anew: what its last connection left in flight, it will say itself. */
static void replace(const struct session *session, int pid, uint64_t now) {
    for (struct process *p = arbiter.processes; p && pid; p = p->next)
        if (p->session == session && p->pid == pid && p->socket < 0)
            process_died(p, now);
}

void process_accept(struct session *session, uint64_t now) {
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    int fd = accept4(session->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct process *process = fd < 0 || session->processes >= MAX_PROCESSES ? NULL : calloc(1, sizeof *process);
    if (!process || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)) {
        if (fd >= 0)
            close(fd);
        free(process);
        return;
    }
    *process = (struct process){.next = arbiter.processes, .session = session, .socket = fd, .pidfd = -1};
    process->pid = peer.pid; /* 0: in a namespace that is not below ours */
    process->pidfd = peer.pid > 0 ? (int)syscall(SYS_pidfd_open, peer.pid, 0) : -1;
    process->source = (struct source){SOURCE_PROCESS, process};
    process->death = (struct source){SOURCE_DEATH, process};
    watch(fd, &process->source);
    if (process->pidfd >= 0)
        watch(process->pidfd, &process->death);
    replace(session, process->pid, now);
    arbiter.processes = process;
    session->processes++;
}

static void set_flags(struct process *process, int gpu, uint8_t flags, uint64_t now) {
    struct share *share = &process->session->share[gpu];
    unsigned busy = 0, wants = 0;
    process->flags[gpu] = flags;
    if (!share->queue) return;
    for (const struct process *p = arbiter.processes; p; p = p->next)
        if (p->session == process->session) {
            busy += (p->flags[gpu] & STATE_BUSY) != 0;
            wants += (p->flags[gpu] & STATE_WANTS) != 0;
        }
    queue_change(share->queue, &share->member, busy, wants, now);
}

static void hang_up(struct process *process, uint64_t now) {
    close(process->socket);
    process->socket = -1;
    process->hung_up = now;
    for (int i = 0; i < MAX_GPUS; i++)
        if (process->flags[i])
            set_flags(process, i, process->flags[i] & STATE_BUSY, now);
    if (process->pidfd < 0)
        process_died(process, now);
}

void process_read(struct process *process, uint64_t now) {
    struct grant_state state;
    for (int i = 0; i < MESSAGES_AT_ONCE && process->socket >= 0; i++) {
        ssize_t size = recv(process->socket, &state, sizeof state, MSG_DONTWAIT);
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
        int gpus = process->session->limits.count;
        bool good = size == sizeof state && state.version == STATE_VERSION && state.gpu < gpus;
        if (good && process->flags[state.gpu] != (state.flags & (STATE_BUSY | STATE_WANTS)))
            set_flags(process, state.gpu, state.flags & (STATE_BUSY | STATE_WANTS), now);
        if (!good)
            hang_up(process, now);
    }
}

void process_died(struct process *process, uint64_t now) {
    if (process->gone) return;
    process->gone = true;
    process->session->processes--;
    for (int i = 0; i < MAX_GPUS; i++)
        if (process->flags[i])
            set_flags(process, i, 0, now);
    if (process->socket >= 0)
        close(process->socket);
    if (process->pidfd >= 0)
        close(process->pidfd);
}

void processes_drop(const struct session *session, uint64_t now) {
    for (struct process *p = arbiter.processes; p; p = p->next)
        if (p->session == session)
            process_died(p, now);
}

void processes_expire(uint64_t now) {
    for (struct process *p = arbiter.processes; p; p = p->next)
        if (p->socket < 0 && now - p->hung_up >= FORGIVE_NS)
            process_died(p, now);
}

void processes_free(void) {
    for (struct process **at = &arbiter.processes, *p; (p = *at);)
        if (p->gone) {
            *at = p->next;
            free(p);
        } else {
            at = &p->next;
        }
}
