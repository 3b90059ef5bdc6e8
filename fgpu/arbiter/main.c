/* The arbiter of a host: gives the sessions on its GPUs turns. arbiter --dir FOLDER [--build HEX] */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include "arbiter.h"

enum { EVENTS = 64, RUNS_ALREADY = 3, MOST_DESCRIPTORS = 65536 };
static const uint64_t SCAN_NS = 250000000, REPORT_NS = 1000000000;
static volatile sig_atomic_t ended;

static void on_end(int number) {
    (void)number;
    ended = 1;
}

static int fail(const char *what) {
    fprintf(stderr, "arbiter: %s: %s\n", what, strerror(errno));
    return 1;
}

/* Held until this process ends. Host workers look for an arbiter by sharing the lock for a moment, which is waited for:
   beside an arbiter, which has the lock alone, it could not be shared. */
static int take_lock(const char *build) {
    char text[128];
    int fd = openat(arbiter.folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return fail("lock");
    while (flock(fd, LOCK_EX | LOCK_NB)) {
        if (flock(fd, LOCK_SH | LOCK_NB)) {
            fprintf(stderr, "arbiter: another one runs for this folder\n");
            return RUNS_ALREADY;
        }
        flock(fd, LOCK_UN);
        usleep(1000);
    }
    int length = snprintf(text, sizeof text, "pid=%d build=%.64s\n", (int)getpid(), build);
    return ftruncate(fd, 0) || write(fd, text, (size_t)length) != length ? fail("lock") : 0;
}

/* As many descriptors as may be had; a quarter of them is not for connections. */
static void raise_limit(void) {
    struct rlimit limit = {1024, 1024};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = least(limit.rlim_max, MOST_DESCRIPTORS);
    if (setrlimit(RLIMIT_NOFILE, &limit))
        getrlimit(RLIMIT_NOFILE, &limit);
    arbiter.descriptors = (unsigned)least(limit.rlim_cur, MOST_DESCRIPTORS) / 4 * 3;
}

static void handle(const struct source *source, uint64_t now) {
    if (!source) { /* the timer: its time is read elsewhere */
        return;
    } else if (source->kind == SOURCE_SESSION) {
        connection_accept(source->of, now);
    } else if (source->kind == SOURCE_DEATH) {
        process_died(source->of, now);
    } else {
        struct connection *connection = source->of;
        if (!connection->gone)
            connection_read(connection, now);
    }
}

static void serve(void) {
    struct epoll_event events[EVENTS];
    uint64_t beat = 0, scan = 0, report = 0;
    bool had_sessions = true;
    while (!ended) {
        uint64_t now = clock_now();
        if (now >= scan) {
            sessions_scan(now);
            processes_expire(now);
            scan = now + SCAN_NS;
        }
        if (now >= beat) {
            sessions_beat(now);
            beat = now + GRANT_BEAT_NS;
        }
        if (now >= report && (arbiter.sessions || had_sessions)) {
            had_sessions = arbiter.sessions;
            sessions_report("status");
            report = now + REPORT_NS;
        }
        sessions_run(now);
        processes_free();
        int count = system_wait(arbiter.epoll, events, EVENTS, least(least(beat, scan), sessions_next_look()));
        now = clock_now();
        for (int i = 0; i < count; i++)
            handle(events[i].data.ptr, now);
    }
}

static int run(const char *folder, const char *build) {
    struct sigaction action = {.sa_handler = on_end};
    arbiter.folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (arbiter.folder < 0) return fail(folder);
    int problem = take_lock(build);
    if (problem) return problem;
    raise_limit();
    arbiter.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (arbiter.epoll < 0) return fail("epoll");
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    if (nice(-10) < 0) /* where it may: what it decides is short, and everybody waits for it */
        errno = 0;
    sessions_scan(clock_now());
    puts("ready");
    fflush(stdout);
    serve();
    sessions_close();
    return 0;
}

int main(int argc, char **argv) {
    const char *folder = NULL, *build = "";
    for (int i = 1; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], "--dir"))
            folder = argv[i + 1];
        else if (!strcmp(argv[i], "--build"))
            build = argv[i + 1];
    if (!folder || argc % 2 == 0) {
        fprintf(stderr, "usage: arbiter --dir FOLDER [--build HEX]\n");
        return 2;
    }
    return run(folder, build);
}
