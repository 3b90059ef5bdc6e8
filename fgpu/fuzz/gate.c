/* Launches, waits, captures and ends of streams and contexts, by threads that come between one another wherever the
 * hook has let go of its lock, under turns of an arbiter or a budget. No event is recorded on a stream that has ended,
 * and when all is done nothing is left in flight, and nothing is counted. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../src/grant.h"
#include "../src/queue.h"
#include "../sim/driver.h"
#include "input.h"
#include "session.h"

int cuGraphCreate(CUgraph *, unsigned), cuStreamSynchronize(CUstream), cuStreamCreate(CUstream *, unsigned);
int cuStreamBeginCapture_v2(CUstream, int), cuStreamEndCapture(CUstream, CUgraph *), cuStreamDestroy_v2(CUstream);
int cuCtxSetCurrent(CUcontext), cuCtxSynchronize(void);
void fgpuSimHold(CUstream, uint64_t), fgpuSimLaunchOnDevice(CUstream, uint64_t);

enum { GPUS = 2, STREAMS = 8, CONTEXTS = 3, EVENTS = 4, DEPTH = 3, US = 1000, MS = 1000 * US };
#define SECOND (1000ull * MS)

static struct input *rest;
static CUcontext contexts[CONTEXTS]; /* the primary ones, and one of its own */
static struct { CUstream stream; int context; bool records; } streams[STREAMS];
static CUevent events[EVENTS];
static CUgraphExec graph;
static struct grant_page *page;
static CUstream recording[DEPTH + 1], launching[DEPTH + 1]; /* on which each thread does so */
static int listener, connection = -1, depth, here;
static bool governed;
static CUresult (*record)(CUevent, CUstream);
static CUresult (*launch)(LAUNCH_SHAPE, CUstream, void **, void **);

static void step(void);

static bool exists(int which) { return streams[which].stream != NULL; }

/* Another thread goes on meanwhile, in the context that it has. */
static void meanwhile(void) {
    CUcontext current;
    int context = here;
    if (!rest || depth == DEPTH || rest->at >= rest->end || !choose(rest, 2)) return;
    REQUIRE(!cuCtxGetCurrent(&current));
    depth++;
    step();
    depth--;
    here = context;
    cuCtxSetCurrent(current);
}

/* Who launches on the stream meanwhile waits for the event, which here would be for ever. */
static CUresult record_between(CUevent event, CUstream stream) {
    recording[depth] = stream;
    meanwhile();
    CUresult rc = record(event, stream);
    meanwhile();
    recording[depth] = DESTROYED;
    return rc;
}

static bool is_among(const CUstream list[], CUstream stream) {
    for (int i = 0; i < depth; i++)
        if (list[i] == stream) return true;
    return false;
}

static CUresult launch_between(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                               unsigned shared, CUstream stream, void **params, void **extra) {
    meanwhile();
    CUresult rc = launch(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
    meanwhile();
    return rc;
}

/* The arbiter answers whoever has dialled, and lets the session launch for as long as the input says. */
static void arbitrate(void) {
    const struct grant_state word = {STATE_VERSION, 0, 0, 0};
    struct grant_state said;
    uint64_t now = clock_now();
    if (!governed) return;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        if (connection >= 0)
            close(connection);
        connection = fd;
        send(connection, &word, sizeof word, MSG_NOSIGNAL);
    }
    while (connection >= 0 && recv(connection, &said, sizeof said, 0) == sizeof said)
        REQUIRE(said.version == STATE_VERSION && said.gpu < GPUS && said.flags <= (STATE_BUSY | STATE_WANTS));
    page->beat = now;
    for (int gpu = 0; gpu < GPUS; gpu++)
        page->gpu[gpu].until = now + (rest && rest->at < rest->end ? choose(rest, 64) * MS : SECOND);
}

static void asleep(void) {
    arbitrate();
    meanwhile();
}

static CUstream pick_stream(int *which) {
    *which = (int)choose(rest, STREAMS + 2);
    if (*which < STREAMS) return exists(*which) ? streams[*which].stream : NULL;
    return *which == STREAMS && !depth ? STREAM_PER_THREAD : NULL; /* that of the outermost thread alone */
}

static void launch_one(void) {
    static const uint64_t lengths[] = {US, 20 * US, 300 * US, MS, 5 * MS, 50 * MS, 200 * MS, 0};
    int which;
    CUstream stream = pick_stream(&which);
    uint64_t ns = lengths[choose(rest, 8)];
    void *params[] = {&ns};
    if (is_among(recording, stream)) return;
    launching[depth] = stream;
    CUlaunchConfig config = {{1, 1, 1}, {1, 1, 1}, 0, stream, NULL, 0};
    switch (choose(rest, 4)) {
    case 0: cuLaunchKernelEx(&config, NULL, params, NULL); break;
    case 1:
        if (graph)
            cuGraphLaunch(graph, stream);
        break;
    default: cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
    }
    launching[depth] = DESTROYED;
}

static void make_or_end_stream(void) {
    int which = (int)choose(rest, STREAMS);
    if (!exists(which)) {
        streams[which].context = here;
        streams[which].records = false;
        if (cuStreamCreate(&streams[which].stream, choose(rest, 2)))
            streams[which].stream = NULL;
        return;
    }
    CUstream stream = streams[which].stream;
    if (is_among(launching, stream)) return;
    streams[which].stream = NULL;
    REQUIRE(!cuStreamDestroy_v2(stream));
}

static void make_or_end_context(void) {
    if (!contexts[GPUS]) {
        REQUIRE(!cuCtxCreate_v2(&contexts[GPUS], 0, here % GPUS));
        here = GPUS;
        return;
    }
    CUcontext gone = contexts[GPUS];
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].context == GPUS)
            streams[i].stream = NULL;
    contexts[GPUS] = NULL;
    REQUIRE(!cuCtxDestroy_v2(gone));
    cuCtxSetCurrent(contexts[here = 0]);
}

static void capture(void) {
    int which = (int)choose(rest, STREAMS);
    CUgraph out = NULL;
    if (!exists(which) || is_among(launching, streams[which].stream)) return;
    if (!streams[which].records) {
        streams[which].records = !cuStreamBeginCapture_v2(streams[which].stream, (int)choose(rest, 4));
        return;
    }
    streams[which].records = false;
    if (cuStreamEndCapture(streams[which].stream, &out)) return;
    if (graph)
        cuGraphExecDestroy(graph);
    if (cuGraphInstantiateWithFlags(&graph, out, 0))
        graph = NULL;
    cuGraphDestroy(out);
}

static void use_event(void) {
    int which;
    CUevent event = events[choose(rest, EVENTS)];
    CUstream stream = pick_stream(&which);
    if (choose(rest, 2))
        record(event, stream);
    else
        cuStreamWaitEvent(stream, event, 0);
}

static void help(void) {
    gate_hold();
    flight_poll_all();
    gate_let_go();
}

static void step(void) {
    int which;
    CUstream stream;
    switch (choose(rest, 16)) {
    case 0: make_or_end_stream(); break;
    case 1: capture(); break;
    case 2: case 3: use_event(); break;
    case 4: help(); break;
    case 5: clock_sleep(choose(rest, 256) * MS / 4); break;
    case 6:
        stream = pick_stream(&which);
        cuStreamWaitEvent(stream, events[0], 0); /* for what is not on the GPU, which the hook is told */
        fgpuSimHold(stream, clock_now() + choose(rest, 256) * 8 * MS);
        break;
    case 7:
        stream = pick_stream(&which);
        if (which >= STREAMS || !streams[which].records)
            cuStreamSynchronize(stream);
        break;
    case 8:
        stream = pick_stream(&which);
        fgpuSimLaunchOnDevice(stream, choose(rest, 256) * MS / 4);
        break;
    case 9:
        if (choose(rest, 4) == 3 && !depth) /* nobody is at a launch in it */
            make_or_end_context();
        break;
    case 10:
        here = contexts[GPUS] ? (int)choose(rest, CONTEXTS) : (int)choose(rest, GPUS);
        cuCtxSetCurrent(contexts[here]);
        break;
    case 11: governed = !governed && choose(rest, 4) == 3; break;
    default: launch_one();
    }
}

static void between(const char *name, void *now, void *before) {
    for EACH_SYMBOL(s)
        if (!strcmp(s->name, name)) {
            memcpy(before, &s->real, sizeof s->real);
            s->real = now;
        }
}

static void set_up(struct region **region, struct region *clean) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "arbiter"};
    int fd = open("grant", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    REQUIRE(fd >= 0 && !ftruncate(fd, GRANT_BYTES));
    page = mmap(NULL, GRANT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(page != MAP_FAILED);
    page->magic = GRANT_MAGIC;
    page->version = GRANT_VERSION;
    page->epoch = 1;
    unlink(address.sun_path);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    REQUIRE(!bind(listener, (struct sockaddr *)&address, sizeof address) && !listen(listener, 16));
    fuzz_socket = "arbiter";
    *region = session_region("25.00");
    session_simulate();
    REQUIRE(!cuInit(0));
    *clean = **region;
    for (CUdevice device = 0; device < GPUS; device++)
        REQUIRE(!cuDevicePrimaryCtxRetain(&contexts[device], device));
    between("cuEventRecord", (void *)(uintptr_t)record_between, &record);
    between("cuLaunchKernel", (void *)(uintptr_t)launch_between, &launch);
    fuzz_asleep = asleep;
}

/* All ends, and is seen to have ended by looks of the helper. */
static void finish(void) {
    rest = NULL;
    if (contexts[GPUS])
        make_or_end_context();
    for (int i = 0; i < STREAMS; i++) {
        CUgraph out = NULL;
        if (exists(i) && streams[i].records && !cuStreamEndCapture(streams[i].stream, &out))
            cuGraphDestroy(out);
        if (exists(i))
            REQUIRE(!cuStreamDestroy_v2(streams[i].stream));
        streams[i].stream = NULL;
        streams[i].records = false;
    }
    if (graph)
        cuGraphExecDestroy(graph);
    graph = NULL;
    for (int i = 0; i < EVENTS; i++)
        cuEventDestroy_v2(events[i]);
    for (int looks = 0; looks < 4; looks++) {
        clock_sleep(10 * SECOND);
        help();
    }
    REQUIRE(!flight_is_helped());
    for (int gpu = 0; gpu < GPUS; gpu++) {
        const struct queue_sums *sums = queue_sums(gpu);
        REQUIRE(!queues_in_use(gpu) && !sums->working && !sums->behind && !sums->closed && !sums->launches);
        cuCtxSetCurrent(contexts[gpu]);
        REQUIRE(!cuCtxSynchronize());
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct region *region, clean;
    if (!region)
        set_up(&region, &clean);
    struct input in = {data, data + size};
    *region = clean;
    session_forget();
    governed = choose(&in, 2);
    if (connection >= 0)
        close(connection);
    connection = -1;
    depth = 0;
    for (int i = 0; i <= DEPTH; i++)
        recording[i] = launching[i] = DESTROYED;
    cuCtxSetCurrent(contexts[here = 0]);
    for (int i = 0; i < EVENTS; i++)
        REQUIRE(!cuEventCreate(&events[i], 0));
    rest = &in;
    while (in.at < in.end)
        step();
    finish();
    return 0;
}
