/* Reads the limits file. Anything unexpected makes the whole file unacceptable: no valid limit, no CUDA. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fgpu.h"

enum { MAX_FILE = 8192, FRAME_MS = 100 };

static const char *slurp(const char *path, char *text) {
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return "limits file missing";
    ssize_t size = fstat(fd, &info) ? -1 : read(fd, text, MAX_FILE);
    close(fd);
    if (size <= 0 || size == MAX_FILE || !S_ISREG(info.st_mode)) return "limits file unreadable";
    if (info.st_mode & 0222 || !system_trusts(info.st_uid)) return "limits file is writable, or not root's";
    text[size] = 0;
    return strlen(text) == (size_t)size ? NULL : "limits file is garbled";
}

/* Read one GPU's line, write it down again, and accept it only if that gives the same text: nothing is guessed at.
 * Returns the line's length, 0 if it is not acceptable. */
static size_t parse_gpu(const char *line, struct limit *out) {
    unsigned long long memory = 0, context = 0;
    unsigned whole = 0, part = 0;
    char again[256];
    sscanf(line, "dev=%40s mem_bytes=%llu sm_percent=%u.%2u phase_ms=%u ctx_bytes=%llu", out->uuid, &memory, &whole,
           &part, &out->phase_ms, &context);
    int length = snprintf(again, sizeof again, "dev=%s mem_bytes=%llu sm_percent=%u.%02u phase_ms=%u ctx_bytes=%llu\n",
                          out->uuid, memory, whole, part, out->phase_ms, context);
    bool known = !strncmp(out->uuid, "GPU-", 4) || !strncmp(out->uuid, "MIG-", 4);
    out->mem_bytes = memory;
    out->ctx_bytes = context;
    out->sm_points = whole * 100 + part;
    bool good = strncmp(line, again, (size_t)length) == 0 && known && context < memory && out->phase_ms < FRAME_MS
                && strspn(out->uuid + 4, "0123456789abcdef-") == 36 && whole <= 100 && out->sm_points > 0
                && out->sm_points <= ALL_SMS;
    return good ? (size_t)length : 0;
}

/* The same for the lines before the GPUs': version, policy, and what holds for the session as a whole. */
static size_t parse_head(const char *text, struct limits *out) {
    static const char form[] = "version=2\npolicy=enforce\nsharing=%s\npinned_bytes=%llu\n";
    unsigned long long pinned = 0;
    char sharing[6] = "", again[128];
    sscanf(text, "version=2\npolicy=enforce\nsharing=%5[a-z]\npinned_bytes=%llu", sharing, &pinned);
    int length = snprintf(again, sizeof again, form, sharing, pinned);
    out->burst = strcmp(sharing, "burst") == 0;
    out->pinned_bytes = pinned;
    return strncmp(text, again, (size_t)length) == 0 && (out->burst || !strcmp(sharing, "cap")) ? (size_t)length : 0;
}

const char *limits_load(const char *path, struct limits *out) {
    char text[MAX_FILE + 1], *line;
    size_t length;
    const char *problem = slurp(path, text);
    if (problem) return problem;
    memset(out, 0, sizeof *out);
    if (!(length = parse_head(text, out))) return "limits file has an unknown version or policy";
    line = text + length;
    for (; out->count < MAX_GPUS && (length = parse_gpu(line, &out->gpu[out->count])); line += length) {
        if (limits_find(out, out->gpu[out->count].uuid) >= 0) return "limits file names a GPU twice";
        out->count++;
    }
    return out->count && strcmp(line, "end\n") == 0 ? NULL : "limits file has a bad line or is cut short";
}

/* The prefix (GPU- or MIG-) is not compared: the driver gives bare bytes. */
int limits_find(const struct limits *limits, const char *uuid) {
    for (int i = 0; i < limits->count; i++)
        if (strcmp(limits->gpu[i].uuid + 4, uuid + 4) == 0) return i;
    return -1;
}
