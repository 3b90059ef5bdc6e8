/* The sessions that have a share of this host's GPUs. Each has a folder, made by the host worker: its lease, the grant
 * page and a folder for the socket. What the folders say is all that an arbiter knows, so one that is started anew goes
 * on where the last one ended, but for what was saved up and owed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "arbiter.h"

struct arbiter arbiter;

static void publish(struct member *member) {
    struct share *share = (struct share *)member; /* its first field */
    struct session *session = share->session;
    _Atomic uint32_t *word = &session->page->gpu[share->gpu].word;
    atomic_store_explicit(&session->page->gpu[share->gpu].until, member->until, memory_order_release);
    atomic_fetch_add_explicit(word, 1, memory_order_release);
    if (member->until)
        system_wake(word, session->page_key + (uint64_t)share->gpu);
}

/* Of a GPU that a session has a share of; one that nobody shares any more makes room for another. */
static struct run_queue *queue_of(const char *uuid) {
    int free = arbiter.queues;
    for (int i = 0; i < arbiter.queues; i++)
        if (!strcmp(arbiter.queue[i].uuid, uuid))
            return &arbiter.queue[i].run;
        else if (!arbiter.queue[i].run.members)
            free = i;
    if (free == MAX_QUEUES) return NULL;
    arbiter.queues = free == arbiter.queues ? free + 1 : arbiter.queues;
    memset(&arbiter.queue[free], 0, sizeof arbiter.queue[free]);
    memcpy(arbiter.queue[free].uuid, uuid, sizeof arbiter.queue[0].uuid);
    arbiter.queue[free].run.publish = publish;
    return &arbiter.queue[free].run;
}

static int open_in(const struct session *session, const char *name, int how) {
    char path[NAME_BYTES + 32];
    snprintf(path, sizeof path, "%s/%s", session->name, name);
    return openat(arbiter.folder, path, how | O_CLOEXEC | O_NOFOLLOW);
}

/* The page is the worker's to make, once: the container has this very file. */
static bool map_page(struct session *session) {
    struct stat info;
    int fd = open_in(session, "grant", O_RDWR);
    if (fd < 0) return false;
    bool good = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == GRANT_BYTES;
    void *map = good ? mmap(NULL, GRANT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED) return false;
    session->page = map;
    session->page_key = info.st_ino << 8;
    return true;
}

/* Make the socket under another name and put it in its place, with its path by way of the folder: paths are short. */
static bool listen_at(struct session *session) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int folder = open_in(session, "socket", O_RDONLY | O_DIRECTORY);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/new", folder);
    unlinkat(folder, "new", 0);
    session->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    session->source = (struct source){SOURCE_SESSION, session};
    bool good = folder >= 0 && !bind(session->socket, (struct sockaddr *)&address, sizeof address)
                && !fchmodat(folder, "new", 0666, 0) && !listen(session->socket, 64)
                && !renameat(folder, "new", folder, "arbiter")
                && watch(session->socket, &session->source);
    if (folder >= 0)
        close(folder);
    return good;
}

static void forget(struct session *session) {
    if (session->page)
        munmap(session->page, GRANT_BYTES);
    if (session->socket >= 0)
        close(session->socket);
    free(session);
}

/* Read the lease, and note which file it was: one that takes its place meanwhile is seen with the next scan. */
static bool read_lease(const struct session *session, struct limits *limits, ino_t *file) {
    struct stat info;
    char path[NAME_BYTES + 64];
    snprintf(path, sizeof path, "%s/lease.conf", session->name);
    if (fstatat(arbiter.folder, path, &info, AT_SYMLINK_NOFOLLOW) || info.st_ino == *file) return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d/%s/lease.conf", arbiter.folder, session->name);
    if (limits_load(path, limits)) return false;
    *file = info.st_ino;
    return true;
}

/* A session that was resized: of the same GPUs it has other shares. */
static void look_at_lease(struct session *session, uint64_t now) {
    struct limits fresh;
    if (!read_lease(session, &fresh, &session->lease) || fresh.count != session->limits.count) return;
    for (int i = 0; i < fresh.count; i++) {
        struct share *share = &session->share[i];
        bool same = !strcmp(fresh.gpu[i].uuid, session->limits.gpu[i].uuid);
        if (same && share->queue && fresh.gpu[i].sm_points < ALL_SMS)
            queue_share(share->queue, &share->member, fresh.gpu[i].sm_points, now);
    }
}

static void leave_queues(struct session *session, uint64_t now) {
    for (int i = 0; i < session->limits.count; i++)
        if (session->share[i].queue)
            queue_remove(session->share[i].queue, &session->share[i].member, now);
}

static bool join_queues(struct session *session, uint64_t now) {
    bool good = true;
    for (int i = 0; i < session->limits.count; i++) {
        struct share *share = &session->share[i];
        const struct limit *limit = &session->limits.gpu[i];
        bool is_shared = limit->sm_points < ALL_SMS;
        share->session = session;
        share->gpu = i;
        share->member.share = limit->sm_points;
        share->member.burst = session->limits.burst;
        share->queue = is_shared ? queue_of(limit->uuid) : NULL;
        atomic_store(&session->page->gpu[i].until, 0);
        if (share->queue)
            queue_add(share->queue, &share->member, now);
        good = good && (share->queue || !is_shared);
    }
    return good;
}

static void adopt(const char *name, uint64_t now) {
    struct session *session = calloc(1, sizeof *session);
    if (!session) return;
    session->socket = -1;
    session->seen = true;
    snprintf(session->name, sizeof session->name, "%s", name);
    if (!read_lease(session, &session->limits, &session->lease) || !map_page(session) || !listen_at(session)) {
        forget(session); /* not complete yet, or not good: looked at again with the next scan */
        return;
    }
    if (!join_queues(session, now)) { /* more GPUs than there is room for: its own budget decides */
        leave_queues(session, now);
        forget(session);
        return;
    }
    session->page->version = GRANT_VERSION;
    atomic_fetch_add(&session->page->epoch, 1);
    atomic_store(&session->page->beat, now);
    atomic_store_explicit(&session->page->magic, GRANT_MAGIC, memory_order_release);
    session->next = arbiter.sessions;
    arbiter.sessions = session;
    arbiter.session_count++;
}

/* Those who could not be accepted are still there. */
static void listen_again(struct session *session) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &session->source};
    if (session->is_deaf && !epoll_ctl(arbiter.epoll, EPOLL_CTL_MOD, session->socket, &event))
        session->is_deaf = false;
}

static void end(struct session *session, uint64_t now) {
    processes_drop(session, now);
    arbiter.session_count--;
    leave_queues(session, now);
    forget(session);
}

static struct session *find(const char *name) {
    for (struct session *s = arbiter.sessions; s; s = s->next)
        if (!strcmp(s->name, name)) return s;
    return NULL;
}

/* Bring the sessions into line with the folders. */
void sessions_scan(uint64_t now) {
    DIR *folder = fdopendir(openat(arbiter.folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return;
    for (struct session *s = arbiter.sessions; s; s = s->next)
        s->seen = false;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        struct session *known = find(entry->d_name);
        if (known) {
            known->seen = true;
            look_at_lease(known, now);
            listen_again(known);
        } else if (entry->d_name[0] != '.' && strlen(entry->d_name) < NAME_BYTES) {
            adopt(entry->d_name, now);
        }
    }
    closedir(folder);
    for (struct session **at = &arbiter.sessions, *s; (s = *at);)
        if (s->seen) {
            at = &s->next;
        } else {
            *at = s->next;
            end(s, now);
        }
}

void sessions_beat(uint64_t now) {
    for (struct session *s = arbiter.sessions; s; s = s->next)
        atomic_store_explicit(&s->page->beat, now, memory_order_release);
}

void sessions_run(uint64_t now) {
    for (int i = 0; i < arbiter.queues; i++)
        arbiter.queue[i].look = queue_run(&arbiter.queue[i].run, now);
}

uint64_t sessions_next_look(void) {
    uint64_t look = UINT64_MAX;
    for (int i = 0; i < arbiter.queues; i++)
        look = least(look, arbiter.queue[i].look);
    return look;
}

/* Nobody is to wait for an arbiter that has ended. */
void sessions_close(void) {
    for (struct session *s = arbiter.sessions; s; s = s->next) {
        char path[NAME_BYTES + 32];
        atomic_store(&s->page->beat, 0);
        snprintf(path, sizeof path, "%s/socket/arbiter", s->name);
        unlinkat(arbiter.folder, path, 0);
    }
}

/* How many processes it has, and which, as words of its lines. */
static void report_processes(FILE *out, const struct session *session) {
    unsigned count = 0;
    const char *comma = "";
    for (const struct process *p = session->processes; p; p = p->next)
        count += !p->gone;
    fprintf(out, " refused=%llu processes=%u pids=", (unsigned long long)session->refused, count);
    for (const struct process *p = session->processes; p; p = p->next)
        if (!p->gone) {
            fprintf(out, "%s%d", comma, p->pid);
            comma = ",";
        }
    fputc('\n', out);
}

/* One line per session and GPU, put in its place at once. */
bool sessions_report(const char *name) {
    int fd = openat(arbiter.folder, ".status", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out) return false;
    for (const struct session *s = arbiter.sessions; s; s = s->next)
        for (int i = 0; i < s->limits.count; i++) {
            const struct member *member = &s->share[i].member;
            if (!s->share[i].queue)
                continue;
            fprintf(out, "session=%s dev=%s occupied_ns=%llu unheld_ns=%llu", s->name, s->limits.gpu[i].uuid,
                    (unsigned long long)member->charged_ns, (unsigned long long)member->unheld_ns);
            report_processes(out, s);
        }
    bool good = !ferror(out);
    return fclose(out) == 0 && good && !renameat(arbiter.folder, ".status", arbiter.folder, name);
}
