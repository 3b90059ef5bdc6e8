/* Reads the limits file. Anything unexpected makes the whole file unacceptable: no valid limit, no CUDA. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fgpu.h"

enum { MAX_FILE = 8192, OVERFLOW_UID = 65534, FRAME_MS = 100 };

static const char *slurp(const char *path, char *text) {
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return "limits file missing";
    ssize_t size = fstat(fd, &info) ? -1 : read(fd, text, MAX_FILE);
    close(fd);
    if (size <= 0 || size == MAX_FILE || !S_ISREG(info.st_mode))
        return "limits file unreadable";
    if (info.st_mode & 0222)
        return "limits file is writable";
#ifndef FGPU_TEST
    if (info.st_uid != 0 && info.st_uid != OVERFLOW_UID) /* root, or root outside of this user namespace */
        return "limits file is not root's";
#endif
    text[size] = 0;
    return strlen(text) == (size_t)size ? NULL : "limits file is garbled";
}

/* Read one GPU's line, write it down again, and accept it only if that gives the same text: nothing is guessed at. */
static bool parse_gpu(const char *line, struct limit *out) {
    unsigned long long memory = 0, context = 0;
    unsigned whole = 0, part = 0;
    char again[256];
    sscanf(line, "dev=%40s mem_bytes=%llu sm_percent=%u.%2u phase_ms=%u ctx_bytes=%llu", out->uuid, &memory, &whole,
           &part, &out->phase_ms, &context);
    snprintf(again, sizeof again, "dev=%s mem_bytes=%llu sm_percent=%u.%02u phase_ms=%u ctx_bytes=%llu", out->uuid, memory,
             whole, part, out->phase_ms, context);
    bool known = !strncmp(out->uuid, "GPU-", 4) || !strncmp(out->uuid, "MIG-", 4);
    out->mem_bytes = memory;
    out->ctx_bytes = context;
    out->sm_points = whole * 100 + part;
    return strcmp(line, again) == 0 && known && strspn(out->uuid + 4, "0123456789abcdef-") == 36 && context < memory
           && whole <= 100 && out->sm_points > 0 && out->sm_points <= 10000 && out->phase_ms < FRAME_MS;
}

const char *limits_load(const char *path, struct limits *out) {
    char text[MAX_FILE + 1], *rest;
    const char *problem = slurp(path, text);
    int line = 0;
    bool ended = false;
    if (problem)
        return problem;
    memset(out, 0, sizeof *out);
    for (char *word = strtok_r(text, "\n", &rest); word; word = strtok_r(NULL, "\n", &rest), line++) {
        if (ended)
            return "limits file goes on after its end";
        if (line == 0 && strcmp(word, "version=1"))
            return "limits file has an unknown version";
        if (line == 1 && strcmp(word, "policy=enforce"))
            return "limits file has an unknown policy";
        if (line < 2)
            continue;
        ended = strcmp(word, "end") == 0;
        if (ended)
            continue;
        if (out->count == MAX_GPUS || !parse_gpu(word, &out->gpu[out->count]))
            return "limits file has a bad line";
        if (limits_find(out, out->gpu[out->count].uuid) >= 0)
            return "limits file names a GPU twice";
        out->count++;
    }
    return ended && out->count ? NULL : "limits file is cut short";
}

/* The prefix (GPU- or MIG-) is not compared: the driver gives bare bytes. */
int limits_find(const struct limits *limits, const char *uuid) {
    for (int i = 0; i < limits->count; i++)
        if (strcmp(limits->gpu[i].uuid + 4, uuid + 4) == 0)
            return i;
    return -1;
}
