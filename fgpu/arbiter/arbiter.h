/* What the files of the arbiter share. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/types.h>

#include "../src/fgpu.h"
#include "../src/grant.h"
#include "run_queue.h"

enum { MAX_QUEUES = 64, MAX_CONNECTIONS = 64, NAME_BYTES = 128 };

enum source_kind { SOURCE_SESSION, SOURCE_CONNECTION, SOURCE_DEATH };
struct source { enum source_kind kind; void *of; }; /* what an event of the epoll set is about */

struct share { /* a session's part of one GPU; on one that is all its own, `queue` is NULL */
    struct member member;
    struct run_queue *queue;
    struct session *session;
    int gpu; /* index into its limits */
};
struct session {
    struct session *next;
    char name[NAME_BYTES];
    struct limits limits;
    struct share share[MAX_GPUS];
    struct grant_page *page;
    uint64_t page_key;
    ino_t lease; /* the file that `limits` was read from: the worker puts another in its place */
    int socket;
    bool is_deaf; /* its callers wait until the next scan */
    struct process *processes;
    struct connection *connections;
    unsigned connected; /* how many these are */
    uint64_t refused;   /* connections, so far */
    bool seen;          /* by the last scan */
    struct source source;
};
struct process { /* of one pid, however many connections it has */
    struct process *next;
    int pid, pidfd; /* -1: not known when it ends */
    unsigned connections;
    struct source death;
    struct session *session;
    bool gone;
};
struct connection {
    struct connection *next;
    struct session *session;
    struct process *process;
    int socket;              /* -1: its process has hung up, and may be alive */
    uint64_t heard, hung_up; /* when it spoke last, and when it ended */
    uint8_t flags[MAX_GPUS];
    struct source source;
    bool gone;
};

/* sessions.c: the folders that the host worker makes, and the GPUs' queues */
struct arbiter {
    int folder, epoll;
    struct session *sessions;
    unsigned session_count;
    unsigned descriptors; /* for connections; the others are for new sessions and files */
    struct { char uuid[48]; struct run_queue run; uint64_t look; } queue[MAX_QUEUES];
    int queues;
};
extern struct arbiter arbiter;
void sessions_scan(uint64_t now);
void sessions_beat(uint64_t now);
void sessions_run(uint64_t now);
uint64_t sessions_next_look(void);
void sessions_close(void);
bool sessions_report(const char *path);

/* processes.c: their connections */
bool watch(int fd, struct source *source);
void connection_accept(struct session *session, uint64_t now);
void connection_read(struct connection *connection, uint64_t now);
void process_died(struct process *process, uint64_t now);
void processes_drop(struct session *session, uint64_t now); /* all of them, at once */
void processes_expire(uint64_t now);
void processes_free(void); /* those that are gone: no event speaks of them any more */

/* system.c; tests/c/arbiter_system.c stands in for it in the test build. */
int system_wait(int epoll, struct epoll_event *events, int room, uint64_t until); /* for an event, or until then */
void system_wake(_Atomic uint32_t *word, uint64_t key); /* whoever sleeps on it, in any process */
