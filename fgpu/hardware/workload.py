"""One GPU load in one process, through the driver alone: works on a bare machine with Python 3 and a driver.

Prints one JSON object. Started by protocol.py with or without the hook preloaded. The same calls run on a real GPU (a
small PTX kernel does the work) and on the simulated one (a kernel takes as long as its first parameter says).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import sys
import time
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

KERNEL_NS = 1_000_000
TINY_NS = 20_000
GRAPH_LAUNCHES = 10
QUEUED_NS = 500_000_000  # of kernels at most, so that long ones do not keep a run from its end
CHUNK = 64 << 20
ROW = 64 << 10  # bytes, which no driver pads
OUT_OF_MEMORY = 2
MAX_PINNED_BYTES = 4 << 30  # of the host's memory, where nothing refuses
WARM_UP_SECONDS = 0.2  # two frames of the budget
WAKES, REST_SECONDS, EARLY_NS = 5, 0.5, 200_000_000
MAX_ROUNDS = 1 << 40  # of a kernel's loop: hours on any GPU
ROUTED = (
    *("cuMemAlloc", "cuMemAllocAsync", "cuMemCreate", "cuMemGetInfo"),
    *("cuLaunchKernel", "cuGraphLaunch", "cuCtxCreate"),
)
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry work(.param .u64 ns, .param .u64 rounds, .param .u64 out)
{
    .reg .pred %p<3>;
    .reg .f32 %f<4>;
    .reg .u64 %r<4>;
    ld.param.u64 %r1, [rounds];
    ld.param.u64 %r2, [out];
    mov.f32 %f1, 0f3F800000;
    mov.f32 %f2, 0f3F7FFFFF;
loop:
    setp.eq.u64 %p1, %r1, 0;
    @%p1 bra done;
    fma.rn.f32 %f1, %f1, %f2, %f2;
    sub.u64 %r1, %r1, 1;
    bra loop;
done:
    setp.eq.u64 %p2, %r2, 0;
    @%p2 bra end;
    st.global.f32 [%r2], %f1;
end:
    ret;
}
"""


class DriverError(Exception):
    """A driver call that failed; `code` is CUDA's."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} returned {code}")
        self.code = code


class MemoryLocation(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class AllocationProperties(ctypes.Structure):
    _fields_ = [
        ("type", c_int),
        ("handle_types", c_int),
        ("location", MemoryLocation),
        ("win32", c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class ArrayDescriptor(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_int), ("channels", c_uint)]


class CudaDevice:
    """Device 0 with its primary context, and the work kernel."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        context, module = c_void_p(), c_void_p()
        self.call("cuDevicePrimaryCtxRetain", byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", byref(module), c_char_p(PTX))
        self.kernel, self.stream = c_void_p(), c_void_p()
        self.call("cuModuleGetFunction", byref(self.kernel), module, c_char_p(b"work"))
        self.call("cuStreamCreate", byref(self.stream), 0)
        sms = c_int()
        self.call("cuDeviceGetAttribute", byref(sms), 16, 0)
        self.blocks = sms.value * 4
        self.rounds = c_uint64(int(os.environ.get("FGPU_ROUNDS", "0")))

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self.library, name)(*arguments)
        if code:
            raise DriverError(name, code)

    def launch(self, ns: int, rounds: c_uint64 | None = None) -> None:
        nominal = c_uint64(max(1, self.rounds.value * ns // KERNEL_NS))
        values = (c_uint64(ns), nominal if rounds is None else rounds, c_uint64(0))
        parameters = (c_void_p * 3)(*(ctypes.addressof(value) for value in values))
        self.call("cuLaunchKernel", self.kernel, self.blocks, 1, 1, 256, 1, 1, 0, self.stream, parameters, None)

    def synchronize(self) -> None:
        self.call("cuStreamSynchronize", self.stream)

    def now(self) -> float:
        """Seconds, on the simulated clock where the simulated driver keeps one."""
        if "FGPU_SIM_CLOCK" not in os.environ:
            return time.perf_counter()
        clock = self.library.fgpuSimNow
        clock.restype = c_uint64
        return float(clock()) / 1e9

    def sleep(self, seconds: float) -> None:
        if "FGPU_SIM_CLOCK" not in os.environ:
            time.sleep(seconds)
            return
        self.library.fgpuSimSleepUntil(c_uint64(int((self.now() + seconds) * 1e9)))

    def memory(self) -> tuple[int, int]:
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value


def say(result: object) -> None:
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def allocate_plain(gpu: CudaDevice, size: int) -> None:
    gpu.call("cuMemAlloc_v2", byref(c_uint64()), c_size_t(size))


def allocate_pitched(gpu: CudaDevice, size: int) -> None:
    rows = max(1, size // ROW)
    gpu.call("cuMemAllocPitch_v2", byref(c_uint64()), byref(c_size_t()), c_size_t(ROW), c_size_t(rows), 4)


def allocate_managed(gpu: CudaDevice, size: int) -> None:
    gpu.call("cuMemAllocManaged", byref(c_uint64()), c_size_t(size), 1)


def allocate_array(gpu: CudaDevice, size: int) -> None:
    array = ArrayDescriptor(width=ROW, height=max(1, size // ROW), format=1, channels=1)
    gpu.call("cuArrayCreate_v2", byref(c_void_p()), byref(array))


def allocate_async(gpu: CudaDevice, size: int) -> None:
    gpu.call("cuMemAllocAsync", byref(c_uint64()), c_size_t(size), gpu.stream)


def allocate_graph(gpu: CudaDevice, size: int) -> None:
    """Record an allocation into a graph, which holds the memory from then on."""
    gpu.call("cuStreamBeginCapture_v2", gpu.stream, 0)
    try:
        allocate_async(gpu, size)
    finally:
        gpu.library.cuStreamEndCapture(gpu.stream, byref(c_void_p()))


def allocate_vmm(gpu: CudaDevice, size: int) -> None:
    properties = AllocationProperties(type=1, location=MemoryLocation(1, 0))
    gpu.call("cuMemCreate", byref(c_uint64()), c_size_t(size), byref(properties), c_uint64(0))


ALLOCATORS: dict[str, tuple[Callable[[CudaDevice, int], None], int]] = {  # with the least that it is asked for
    "plain": (allocate_plain, 1),
    "pitched": (allocate_pitched, ROW),
    "managed": (allocate_managed, 1),
    "array": (allocate_array, ROW),
    "async": (allocate_async, CHUNK),  # a pool reserves more than it is asked for
    "graph": (allocate_graph, CHUNK),
    "vmm": (allocate_vmm, 2 << 20),
}


def fill(gpu: CudaDevice, allocator: str) -> dict[str, int]:
    """Allocate until the driver refuses, then half as much at a time, down to what the allocator can do."""
    free, total = gpu.memory()
    allocate, least = ALLOCATORS[allocator]
    size, allocated, code = CHUNK, 0, 0
    while size >= least:
        try:
            allocate(gpu, size)
            allocated += size
        except DriverError as error:
            code = error.code
            size = size // 2 if code == OUT_OF_MEMORY else 0
    return {"total": total, "free_before": free, "allocated": allocated, "code": code, "exact_to": least}


def cgroup_bytes() -> int | None:
    """Return what the kernel charges to this process' cgroup, v2 or v1; None where it does not say."""
    for path in ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            return int(file.read())
    return None


def pin(gpu: CudaDevice, _: str) -> dict[str, int | None]:
    """Allocate page-locked host memory until the driver refuses."""
    before, allocated = cgroup_bytes(), 0
    try:
        while allocated < MAX_PINNED_BYTES:
            gpu.call("cuMemHostAlloc", byref(c_void_p()), c_size_t(CHUNK), 0)
            allocated += CHUNK
    except DriverError as error:
        after = cgroup_bytes()
        charged = after - before if before is not None and after is not None else None
        return {"allocated": allocated, "code": error.code, "charged_to_cgroup": charged}
    return {"allocated": allocated, "code": 0, "charged_to_cgroup": None}


def hold(gpu: CudaDevice, allocator: str) -> dict[str, int]:
    """Allocate until refused, say so, and keep it until killed."""
    say(fill(gpu, allocator))
    sys.stdin.read()
    return {}


def graph_of(gpu: CudaDevice) -> c_void_p:
    graph, executable = c_void_p(), c_void_p()
    gpu.call("cuStreamBeginCapture_v2", gpu.stream, 0)
    for _ in range(GRAPH_LAUNCHES):
        gpu.launch(KERNEL_NS)
    gpu.call("cuStreamEndCapture", gpu.stream, byref(graph))
    gpu.call("cuGraphInstantiateWithFlags", byref(executable), graph, c_uint64(0))
    return executable


def busy_for(gpu: CudaDevice, seconds: float, launch: Callable[[], None], ns: int, ahead_ns: int = QUEUED_NS) -> float:
    """Launch for so long, at most `ahead_ns` ahead; return milliseconds of kernels completed per millisecond."""
    done_ns, began = 0, gpu.now()
    while gpu.now() - began < seconds:
        launch()
        done_ns += ns
        if done_ns % ahead_ns < ns:
            gpu.synchronize()
    gpu.synchronize()
    return done_ns / 1e9 / (gpu.now() - began)


def throughput(gpu: CudaDevice, pattern: str) -> dict[str, float]:
    """Return the part of the time that kernels get by their nominal length, with the first frame's budget spent."""
    ns = {"graph": GRAPH_LAUNCHES * KERNEL_NS, "tiny": TINY_NS}.get(pattern, KERNEL_NS)
    launch = functools.partial(gpu.launch, ns)
    if pattern == "graph":
        launch = functools.partial(gpu.call, "cuGraphLaunch", graph_of(gpu), gpu.stream)
    ahead_ns = ns if pattern == "sync" else QUEUED_NS
    busy_for(gpu, WARM_UP_SECONDS, launch, ns, ahead_ns)
    return {"busy": busy_for(gpu, float(os.environ["FGPU_SECONDS"]), launch, ns, ahead_ns)}


def calibrate(gpu: CudaDevice) -> dict[str, int]:
    """Return how many rounds make the kernel take its nominal length on this GPU."""
    rounds = 10_000
    gpu.launch(KERNEL_NS, c_uint64(rounds))
    gpu.synchronize()  # the first launch loads the module
    while rounds < MAX_ROUNDS:
        began = time.perf_counter()
        for _ in range(20):
            gpu.launch(KERNEL_NS, c_uint64(rounds))
        gpu.synchronize()
        per_kernel = (time.perf_counter() - began) / 20 * 1e9
        if per_kernel > KERNEL_NS / 4 or "FGPU_SIM_CLOCK" in os.environ:
            return {"rounds": int(rounds * KERNEL_NS / max(per_kernel, 1))}
        rounds *= 4
    raise RuntimeError("kernels take no time on this GPU, so nothing can be measured by them")


def wait_for_others() -> None:
    """On a real GPU go on when a line is read, so that all that contend do so at the same time."""
    if "FGPU_SIM_CLOCK" not in os.environ:
        say({"ready": True})
        sys.stdin.readline()


def wake(gpu: CudaDevice, _: str) -> dict[str, float]:
    """Rest, then launch, some times; return how long a first kernel waited and our part of 200 ms, at worst."""
    gpu.launch(KERNEL_NS)
    gpu.synchronize()  # the first launch loads the module
    wait_for_others()
    wakes = [wake_once(gpu) for _ in range(WAKES)]
    return {"first_ms": round(max(wait for wait, _ in wakes), 2), "busy": min(busy for _, busy in wakes)}


def wake_once(gpu: CudaDevice) -> tuple[float, float]:
    gpu.sleep(REST_SECONDS)
    began = gpu.now()
    gpu.launch(KERNEL_NS)
    gpu.synchronize()
    waited_ms, done_ns = (gpu.now() - began) * 1e3 - KERNEL_NS / 1e6, KERNEL_NS
    while gpu.now() - began < EARLY_NS / 1e9:
        for _launch in range(5):
            gpu.launch(KERNEL_NS)
        gpu.synchronize()
        done_ns += 5 * KERNEL_NS
    return max(0.0, waited_ms), done_ns / 1e9 / (gpu.now() - began)


def contend(gpu: CudaDevice, kernel_us: str) -> dict[str, float]:
    """Keep the GPU busy with kernels of this length beside others; return the same as `throughput`."""
    wait_for_others()
    length_ns = int(kernel_us) * 1000
    launch = functools.partial(gpu.launch, length_ns)
    return {"busy": busy_for(gpu, float(os.environ["FGPU_SECONDS"]), launch, length_ns)}


def cost(gpu: CudaDevice, _: str) -> dict[str, float]:
    """Return ns per allocation and free, and per launch of an empty kernel, from Python: compare, do not quote."""
    calls = int(os.environ.get("FGPU_CALLS", "20000"))
    pointer, nothing = c_uint64(), c_uint64(0)
    began = time.perf_counter()
    for _call in range(calls // 10):
        gpu.call("cuMemAlloc_v2", byref(pointer), c_size_t(1 << 21))
        gpu.call("cuMemFree_v2", pointer)
    middle = time.perf_counter()
    for _call in range(calls):
        gpu.launch(0, nothing)
    gpu.synchronize()
    return {
        "alloc_free_ns": (middle - began) / (calls // 10) * 1e9,
        "launch_ns": (time.perf_counter() - middle) / calls * 1e9,
    }


def about(gpu: CudaDevice, _: str) -> dict[str, object]:
    uuid, name, version = (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(96), c_int()
    gpu.call("cuDeviceGetUuid", byref(uuid), 0)
    gpu.call("cuDeviceGetName", name, 96, 0)
    gpu.call("cuDriverGetVersion", byref(version))
    digits = bytes(uuid).hex()
    parts = [digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))]
    free, total = gpu.memory()
    return {
        "uuid": "GPU-" + "-".join(parts),
        "name": name.value.decode(),
        "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
        "memory_bytes": total,
        "context_bytes": total - free,  # with the driver's own, where nothing else uses the GPU
        "sms": gpu.blocks // 4,
    }


def hook_ranges() -> list[tuple[int, int]]:
    """Where the hook is mapped in this process."""
    with open("/proc/self/maps") as maps:
        spans = [line.split()[0].split("-") for line in maps if "libfgpu" in line]
    return [(int(low, 16), int(high, 16)) for low, high in spans]


def routes(gpu: CudaDevice, _: str) -> dict[str, list[str]]:
    """Which of the allocators and launches that cuGetProcAddress gives are not the hook's; needs the hook."""
    lookup = gpu.library.cuGetProcAddress_v2
    lookup.argtypes = [c_char_p, POINTER(c_void_p), c_int, c_uint64, POINTER(c_uint)]
    ranges, astray = hook_ranges(), []
    for name in ROUTED:
        for flags in (0, 2):
            found = c_void_p()
            lookup(name.encode(), byref(found), 12000, flags, byref(c_uint()))
            if not any(low <= (found.value or 0) < high for low, high in ranges):
                astray.append(f"{name} (flags {flags})")
    return {"astray": astray}


def main(what: str, how: str = "") -> None:
    actions: dict[str, Callable[[CudaDevice, str], object]] = {
        "about": about,
        "fill": fill,
        "hold": hold,
        "pin": pin,
        "throughput": throughput,
        "contend": contend,
        "wake": wake,
        "cost": cost,
        "routes": routes,
        "calibrate": lambda gpu, _: calibrate(gpu),
    }
    say(actions[what](CudaDevice(), how))


if __name__ == "__main__":
    main(*sys.argv[1:])
