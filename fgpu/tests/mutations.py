"""Break the code on purpose and see a test fail: `python -m fgpu.tests.mutations [words of the names]`.

Each mutation is one edit of one file and the tests that must notice it. They run on a copy; a mutation that no test
notices, or that no longer applies, is reported and fails the run. Takes some minutes, so it is no part of the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
HOOK = "test/libfgpu.so"


@dataclass(frozen=True)
class Mutation:
    """Replace `old` (its first occurrence) by `new` in `file`; the selected tests must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str  # a test file, and after "::" words for pytest -k
    rebuild: str = HOOK

    def applies(self) -> bool:
        return self.old in (PACKAGE / self.file).read_text()

    def selects(self, test: str) -> bool:
        """Whether the test of that name, of the mutation's file, is one that must fail."""
        return any(all(word in test for word in words.split(" and ")) for words in self.words.split(" or "))

    @property
    def words(self) -> str:
        return self.tests.partition("::")[2]

    @property
    def test_file(self) -> str:
        return self.tests.partition("::")[0]


MUTATIONS = [
    Mutation("a look per allocation", "src/reload.c", "if (!last ||", "if (true ||", "test_resize.py::ten_milliseconds"),
    Mutation("no more looks", "src/reload.c", "|| clock_coarse() - last >= LOOK_NS", "", "test_resize.py::ten_milliseconds"),
    Mutation("looks too seldom", "src/reload.c", "#define LOOK_NS 10000000u", "#define LOOK_NS 11000000u", "test_resize.py::ten_milliseconds"),
    Mutation("refused by old limits", "src/region.c", "        limits_refresh(); /* a greater", "        /* a greater", "test_resize.py::at_once"),
    Mutation("limits taken over without a lock", "src/reload.c", "    LOCKED(reloading);\n", "", "test_sanitizers.py::threads and tsan", "test/libfgpu-tsan.so"),
    Mutation("a child trusts its parent's look", "src/reload.c", "PER_PROCESS static _Atomic uint64_t looked_at", "static _Atomic uint64_t looked_at", "test_resize.py::child"),
    Mutation("exact fit refused", "src/region.c", "bytes <= limit - used;", "bytes < limit - used;", "test_memory.py::exactly"),
    Mutation("nothing refused", "src/region.c", "if (!fits(gpu, to - from)) return", "if (false) return", "test_memory.py::every_allocator"),
    Mutation("two processes each", "src/region.c", "sum = used > UINT64_MAX - sum", "if (&region->slot[i] == mine) sum = used > UINT64_MAX - sum", "test_processes.py::two_processes"),
    Mutation("no lock", "src/region.c", "    if (to > from && !fits(", "    unlock(&locked); bool fit = fits(gpu, to - from); struct timespec t = {0, 2000000}; nanosleep(&t, NULL); locked = lock(true);\n    if (to > from && !fit && !fits(", "test_processes.py::thirty_two"),
    Mutation("never released", "src/region.c", "own.used[gpu] += to - from;", "own.used[gpu] += to > from ? to - from : 0;", "test_memory.py::freed_memory"),
    Mutation("the dead kept", "src/region.c", "slot == mine || alive(slot))", "true)", "test_processes.py::killed"),
    Mutation("lock not robust", "src/region.c", "PTHREAD_MUTEX_ROBUST", "PTHREAD_MUTEX_STALLED", "test_processes.py::holds_the_lock"),
    Mutation("dead owner not mended", "src/region.c", "if (rc == EOWNERDEAD)", "if (rc == -1)", "test_processes.py::holds_the_lock"),
    Mutation("slot lock alone", "src/region.c", "    if (!identify(slot->pid", "    return false;\n    if (!identify(slot->pid", "test_processes.py::closed_all"),
    Mutation("start time ignored", "src/region.c", "return started == slot->started &&", "return", "test_processes.py::reused_pid"),
    Mutation("exec not noticed", "src/region.c", " && (!stack || !slot->stack || stack == slot->stack)", "", "test_processes.py::exec_gives"),
    Mutation("own slot trusted", "src/region.c", "*mine = own; /* heals", "own = *mine; /* heals", "test_processes.py::lowering"),
    Mutation("magic not checked again", "src/region.c", "if (region->magic == REGION_MAGIC && region->version == REGION_VERSION &&", "if (", "test_processes.py::garbled"),
    Mutation("slots not counted", "src/driver.c", "return rc ? rc : region_join() ?", "return rc ? rc : true ?", "test_processes.py::256th"),
    Mutation("child keeps the slot", "src/region.c", "PER_PROCESS static struct region_slot *mine;", "static struct region_slot *mine;", "test_processes.py::child_of_fork"),
    Mutation("offsets moved", "src/region.h", "uint32_t high, pad;", "uint32_t high, pad, more[2];", "test_processes.py::offsets", "test/probe"),
    Mutation("limits may be writable", "src/limits.c", "info.st_mode & 0222", "info.st_mode & 0", "test_closed.py::writable"),
    Mutation("limits may be a link", "src/limits.c", " | O_NOFOLLOW", "", "test_closed.py::link"),
    Mutation("limits line not compared", "src/limits.c", "strncmp(line, again, (size_t)length) == 0 && known", "known", "test_closed.py::garbled_limits"),
    Mutation("a GPU may be named twice", "src/limits.c", "limits_find(out, out->gpu[out->count].uuid) >= 0", "false", "test_closed.py::garbled_limits"),
    Mutation("limits may be cut short", "src/limits.c", 'strcmp(line, "end\\n") == 0', 'strncmp(line, "end\\n", strlen(line)) == 0', "test_closed.py::garbled_limits"),
    Mutation("limits may go on", "src/limits.c", 'strcmp(line, "end\\n") == 0', 'strncmp(line, "end\\n", 4) == 0', "test_closed.py::garbled_limits"),
    Mutation("another version", "src/limits.c", "static const char form[] = \"version=2\\npolicy=enforce", "static const char form[] = \"version=1\\npolicy=enforce", "test_closed.py::good_file"),
    Mutation("another policy", "src/limits.c", "static const char form[] = \"version=2\\npolicy=enforce", "static const char form[] = \"version=2\\npolicy=observe", "test_closed.py::good_file"),
    Mutation("any size of region", "src/region.c", "info.st_size != REGION_BYTES", "false", "test_closed.py::broken_file"),
    Mutation("any magic", "src/region.c", "if (r->magic || r->version)", "if (false)", "test_closed.py::broken_file"),
    Mutation("GPUs without limit allowed", "src/driver.c", "if (index < 0) return refuse", "if (false) return refuse", "test_closed.py::without_a_limit_closes"),
    Mutation("NVML open without limit", "src/nvml.c", "*gpu < 0 ? NVML_NO_PERMISSION", "*gpu < 0 ? NVML_SUCCESS", "test_closed.py::no_nvml"),
    Mutation("paths from the environment", "Makefile", "HOOK = $(wildcard src/*.c)", "HOOK = $(filter-out src/system.c,$(wildcard src/*.c)) tests/c/system.c", "test_closed.py::installed_library", "libfgpu.so"),
    Mutation("future names offered", "src/route.c", "is_guarded |= *stem >= 'a' ? begins(name, stem) :", "is_guarded |= *stem >= 'a' ? false :", "test_routing.py::future"),
    Mutation("driver's own address given", "src/route.c", "*function = s->wrapper;", "", "test_routing.py::get_proc_address"),
    Mutation("dlsym of dlsym", "src/route.c", "if (name && scope_entry(name))", "if (false)", "test_routing.py::dlsym_of_dlsym"),
    Mutation("dlvsym not intercepted", "src/route.c", "if (name && route_guards(name))", "if (name && !versioned && route_guards(name))", "test_routing.py::versioned"),
    Mutation("RTLD_NEXT finds ourselves", "src/route.c", " || handle == RTLD_NEXT", "", "test_routing.py::looked_up or future"),
    Mutation("caller not kept", "src/scope.c", '"pop %rdx\\npop %rsi\\npop %rdi\\njmp *%rax\\n"', '"pop %rdx\\npop %rsi\\npop %rdi\\nsub $8, %rsp\\ncall *%rax\\nadd $8, %rsp\\nret\\n"', "test_routing.py::rtld_next_still"),
    Mutation("no message for what is withheld", "src/route.c", 'fgpu_real_dlsym(handle, "(withheld by libfgpu)")', "NULL", "test_routing.py::future"),
    Mutation("pinned memory free of charge", "src/pinned.c", "hold_new(fgpu_host(), bytes", "hold_new(fgpu_host(), 0 * bytes", "test_memory.py::page_locked"),
    Mutation("pinned memory always bounded", "src/driver.c", "fgpu_limits.pinned_bytes ? HOST_MEMORY : -1", "HOST_MEMORY", "test_memory.py::page_locked"),
    Mutation("linked names missing", "src/memory.c", "ALLOCATE(cuMemAlloc_v2, HELD_POINTER, *out, claim_here(bytes", "ALLOCATE(cuMemAlloc_v2, HELD_POINTER, *out, claim_here(0 * bytes", "test_routing.py::linked"),
    Mutation("failures stay charged", "src/ledger.c", "    if (hold && rc)\n        undo(hold);", "    if (hold && rc)\n        (void)hold;", "test_memory.py::refusal_by_the_driver or full_card"),
    Mutation("managed free of charge", "src/memory.c", "ALLOCATE(cuMemAllocManaged, HELD_POINTER, *out, claim_here(bytes", "ALLOCATE(cuMemAllocManaged, HELD_POINTER, *out, claim_here(0 * bytes", "test_memory.py::every_allocator and managed"),
    Mutation("arrays free of charge", "src/memory.c", "UINT64_MAX : sum + bytes;", "UINT64_MAX : sum;", "test_memory.py::every_allocator and array"),
    Mutation("VMM free of charge", "src/memory.c", "hold_new(gpu, bytes, NULL, hold)", "hold_new(gpu, 0, NULL, hold)", "test_memory.py::every_allocator and vmm"),
    Mutation("host memory free of charge", "src/driver.c", "*gpu = fgpu_host();", "*gpu = -1;", "test_memory.py::of_the_host"),
    Mutation("host memory the GPU's", "src/driver.c", "if (type != ALLOCATION_MANAGED && on_host)", "if (false)", "test_memory.py::of_the_host"),
    Mutation("managed pools of the host free", "src/driver.c", "if (type != ALLOCATION_MANAGED && on_host)", "if (on_host)", "test_memory.py::managed_pools"),
    Mutation("unknown places accepted", "src/driver.c", "return CUDA_NOT_SUPPORTED; /* a kind", "return CUDA_SUCCESS; /* a kind", "test_memory.py::kinds_of_locations"),
    Mutation("driver's pools charged anywhere", "src/pools.c", "GET_POOL(cuMemGetDefaultMemPool)", "", "test_memory.py::pools_of_the_host and own"),
    Mutation("old capture query", "src/pools.c", "REAL(cuStreamGetCaptureInfo_v3)", "!REAL(cuStreamGetCaptureInfo_v2)", "test_memory.py::captured_edge"),
    Mutation("unknown captures allocate", "src/pools.c", "|| (rc = recording(request->stream, &request->graph))) return rc;", "|| (recording(request->stream, &request->graph), 0)) return rc;", "test_memory.py::unknown_capture"),
    Mutation("exports let go", "src/shared.c", "ledger_put(HELD_EXPORT, KEY(hold), 0, hold);", "(void)0;", "test_memory_shared.py::exported_and_released"),
    Mutation("imports free of charge", "src/shared.c", "hold->imported = true;", "", "test_memory_shared.py::when_mapped or another_session"),
    Mutation("refused mappings charged", "src/memory.c", "if (hold && rc && hold->imported)", "if (false)", "test_memory_shared.py::driver_refuses"),
    Mutation("IPC free of charge", "src/shared.c", "rc = hold_open(id_of(handle), here.gpu, bytes,", "rc = hold_open(id_of(handle), here.gpu, 0,", "test_memory_shared.py::ipc_memory_of_another"),
    Mutation("shares counted twice", "src/region.c", "return sum - least(sum, twice);", "return sum + 0 * twice;", "test_memory_shared.py::leaves_the_rest"),
    Mutation("the dead share", "src/region.c", "            leave(share, slot);", "            (void)share;", "test_memory_shared.py::outlives"),
    Mutation("shares never left", "src/ledger.c", "        region_unshare(entry->share);", "        (void)0;", "test_memory_shared.py::charged_once"),
    Mutation("external memory free", "src/shared.c", "desc ? desc->bytes : 0, NULL, &hold", "0, NULL, &hold", "test_memory_shared.py::external"),
    Mutation("external mappings let go", "src/shared.c", "ledger_share(HELD_EXTERNAL, KEY(memory), HELD_POINTER, *out);", "(void)0;", "test_memory_shared.py::external"),
    Mutation("sparse arrays let go", "src/memory.c", "ledger_share(HELD_HANDLE, list[i].handle,", "(void)(HELD_HANDLE, list[i].handle,", "test_memory_shared.py::sparse"),
    Mutation("inner graphs let go", "src/graphs.c", "ledger_share(HELD_GRAPH, KEY(child), HELD_GRAPH, KEY(graph));", "(void)graph;", "test_memory_shared.py::inner_graphs"),
    Mutation("moved graphs stay", "src/graphs.c", "ledger_drop_all(HELD_GRAPH, KEY(child));", "(void)0;", "test_memory_shared.py::inner_graphs and moved"),
    Mutation("faces shrink", "src/memory.c", "d->flags & (ARRAY_LAYERED | ARRAY_CUBEMAP);", "d->flags & ARRAY_LAYERED;", "test_memory_sizes.py::cubemap"),
    Mutation("blocks cut", "src/memory.c", "is_compressed(d->format) ? 3 : 0", "0", "test_memory_sizes.py::whole_blocks"),
    Mutation("stacks free of charge", "src/contexts.c", "hold_resize(hold, rc ? before : cost);", "hold_resize(hold, 0);", "test_memory_sizes.py::limits_of_a_context_are"),
    Mutation("lock waits by the wall clock", "src/region.c", "    if (CLOCKLOCK) return", "    if (!clock_gettime(CLOCK_REALTIME, &until)) return until.tv_sec += 10, pthread_mutex_timedlock(&region->lock, &until);\n    if (CLOCKLOCK) return", "test_processes.py::wall_clock"),
    Mutation("what is refused is not wrapped", "src/driver.c", "CUDA_REFUSED(REFUSED)", "", "test_functions.py::wrapped", "libfgpu.so"),
    Mutation("mappings not followed", "src/memory.c", "ledger_put(HELD_MAP, at, bytes, hold);", "", "test_memory.py::mapped_memory"),
    Mutation("second handles not followed", "src/memory.c", "ledger_put(HELD_HANDLE, *out, 0, hold);", "", "test_memory.py::last_handle"),
    Mutation("sizes overflow", "src/memory.c", "__builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product", "((product = a * b), product)", "test_memory.py::overflow"),
    Mutation("32-bit interface offered", "src/driver.c", "{ return CUDA_NOT_SUPPORTED; }", "{ return CUDA_SUCCESS; }", "test_memory.py::32_bit"),
    Mutation("more free than there is", "src/memory.c", "*free = least(used < limit ? limit - used : 0, really_free);", "*free = used < limit ? limit - used : 0;", "test_memory.py::full_card"),
    Mutation("more total than there is", "src/memory.c", "*total = least(limit, really_there);", "*total = limit;", "test_views.py::larger"),
    Mutation("pools not trimmed", "src/pools.c", "if (and_trim && hold->gpu >= 0)", "if (false)", "test_memory.py::trimmed"),
    Mutation("pool growth not seen", "src/pools.c", "if (!rc && correct(hold, false))", "if (false && correct(hold, false))", "test_memory.py::grows_by_more"),
    Mutation("GPU of the stream ignored", "src/driver.c", "if (KEY(stream) > KEY(STREAM_PER_THREAD) &&", "if (false &&", "test_memory.py::where_it_lies"),
    Mutation("gate of the current GPU", "src/driver.c", "if (KEY(stream) > KEY(STREAM_PER_THREAD) &&", "if (false &&", "test_gate.py::streams_gpu"),
    Mutation("pools of other GPUs", "src/pools.c", "hold = charge(pool, fgpu_index(device));", "hold = charge(pool, gpu);", "test_memory.py::where_it_lies"),
    Mutation("captures not seen", "src/pools.c", "    if (rc || status != 1)\n        *graph = NULL;", "    *graph = NULL;", "test_memory.py::every_allocator and captured"),
    Mutation("graph nodes free of charge", "src/graphs.c", "hold_new(gpu, node->bytes, NULL, hold)", "hold_new(gpu, 0, NULL, hold)", "test_memory.py::every_allocator and graph"),
    Mutation("executables hold nothing", "src/graphs.c", "            ledger_share(HELD_GRAPH, KEY(graph), HELD_EXEC, KEY(exec)); \\", "            (void)0; \\", "test_memory.py::executable_lives"),
    Mutation("each context charged", "src/contexts.c", "return paid[gpu] ?", "return false ?", "test_memory.py::charged_once"),
    Mutation("contexts free of charge", "src/contexts.c", "fgpu_limits.gpu[gpu].ctx_bytes", "0", "test_memory.py::context_that_does_not_fit"),
    Mutation("child's context free", "src/contexts.c", "PER_PROCESS static struct hold *paid", "static struct hold *paid", "test_memory.py::pays_for_its_own"),
    Mutation("contexts leave memory", "src/contexts.c", "ledger_drop_context(context);", "", "test_memory.py::destroying_a_context or primary_context"),
    Mutation("GPUs by ordinal", "src/driver.c", "return limits_find(&fgpu_limits, text);", "return device;", "test_memory.py::visible_order"),
    Mutation("many GPUs at once", "src/gate.c", "fgpu_gated ? CUDA_NOT_SUPPORTED", "false ? CUDA_NOT_SUPPORTED", "test_memory.py::several_gated"),
    Mutation("total of the card", "src/memory.c", "*bytes = least(*bytes, fgpu_limits.gpu[gpu].mem_bytes);", "(void)0;", "test_views.py::as_the_total"),
    Mutation("NVML total of the card", "src/nvml.c", "out->total = fgpu_limits.gpu[gpu].mem_bytes;", "out->total = 8ull << 30;", "test_views.py::nvidia_smi or nvml"),
    Mutation("NVML processes missing", "src/region.c", "if (!slot->pid || !slot->used[gpu])", "if (true)", "test_views.py::nvml_shows"),
    Mutation("whole card's utilisation hidden", "src/nvml.c", "sm_points == ALL_SMS && REAL", "sm_points > ALL_SMS && REAL", "test_views.py::drivers_utilisation"),
    Mutation("first list of processes", "src/nvml.c", "out[i] = (nvmlProcessV1){list[i].pid, list[i].used};", "out[i] = (nvmlProcessV1){list[i].pid, 0};", "test_views.py::every_list"),
    Mutation("other tenants' samples", "src/nvml.c", "NVML_REFUSED(REFUSE)", "", "test_nvml.py::tells"),
    Mutation("clocks for everybody", "src/nvml.c", "{ return NVML_NO_PERMISSION; }", "{ return NVML_SUCCESS; }", "test_nvml.py::tells"),
    Mutation("a word in a name is overlooked", "src/route.c", "nvml && has(name, stem)", "nvml && begins(name, stem)", "test_nvml.py::come"),
    Mutation("harmless names withheld", "src/route.c", "if (objects_same(name, known)) return false;", "", "test_nvml.py::come"),
    Mutation("other tenants' graphics", "src/nvml.c", "*count = 0;", "*count = 1;", "test_views.py::every_list"),
    Mutation("no gate", "src/gate.c", "if (rc || !fgpu_gated) return rc;", "if (true) return rc;", "test_gate.py::one_process"),
    Mutation("graphs not gated", "src/gate.c", "BOTH_GATED(cuGraphLaunch, stream, (CUgraphExec exec, CUstream stream), (exec, stream))", "WRAP(cuGraphLaunch, (CUgraphExec exec, CUstream stream)) { return CALL(cuGraphLaunch, (exec, stream)); }", "test_gate.py::one_process and graph"),
    Mutation("cooperative not gated", "src/gate.c", "BOTH_GATED(cuLaunchCooperativeKernel, stream, (CUfunction f, SHAPE, CUstream stream, void **params),\n           (f, SHAPED, stream, params))", "WRAP(cuLaunchCooperativeKernel, (CUfunction f, SHAPE, CUstream stream, void **params)) { return CALL(cuLaunchCooperativeKernel, (f, SHAPED, stream, params)); }", "test_gate.py::every_function and cuLaunchCooperativeKernel"),
    Mutation("extended not gated", "src/gate.c", "BOTH_GATED(cuLaunchKernelEx, (config ? config->stream : NULL),\n           (const CUlaunchConfig *config, CUfunction f, void **params, void **extra), (config, f, params, extra))", "WRAP(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction f, void **params, void **extra)) { return CALL(cuLaunchKernelEx, (config, f, params, extra)); }", "test_gate.py::every_function and cuLaunchKernelEx"),
    Mutation("streams of threads not gated", "src/gate.c", "    GATED(name##_ptsz, PER_THREAD(at), params, args)", "    WRAP(name##_ptsz, params) { return CALL(name##_ptsz, args); }", "test_gate.py::every_function and ptsz"),
    Mutation("old launches not gated", "src/gate.c", "GATED(cuLaunch, NULL, (CUfunction f), (f))", "WRAP(cuLaunch, (CUfunction f)) { return CALL(cuLaunch, (f)); }", "test_gate.py::every_function"),
    Mutation("captures gated", "src/flight.c", "|| status; /*", "&& status; /*", "test_gate.py::recorded_into"),
    Mutation("overlaps counted twice", "src/region.c", "fresh -= least(state->span[last].end, end) - most(state->span[last].start, start);", ";", "test_gate.py::four_processes"),
    Mutation("every process a share", "src/region.c", "least(fresh, DEBT_NS) : 0", "least(fresh, DEBT_NS) / 2 : 0", "test_gate.py::four_processes"),
    Mutation("debt forgiven", "src/region.c", "budget = last ? budget", "budget = !last ? budget", "test_gate.py::longer_than"),
    Mutation("savings kept", "src/region.c", "budget = budget > quota ? quota : budget;", "budget;", "test_gate.py::saved_up"),
    Mutation("pauses charged", "src/flight.c", "batch->chained = queue->first < queue->next &&", "batch->chained = queue->next > 0 &&", "test_gate.py::pauses"),
    Mutation("short kernels one by one", "src/flight.c", "SHORT_NS = 100000", "SHORT_NS = 1", "test_arbiter.py::measured_together"),
    Mutation("streams measured together", "src/flight.c", "for_turns && !queue->beside", "for_turns", "test_arbiter.py::hundred_streams_are_charged"),
    Mutation("waiting streams charged", "src/flight.c", "if (batch->begun)\n", "if (true)\n", "test_gate.py::waiting_stream"),
    Mutation("no patience", "src/gate.c", "    if (force)\n", "    if (false)\n", "test_gate.py::kernel_waits_for"),
    Mutation("patience in all cases", "src/flight.c", "->closed == queue->counted.closed", "->closed == 0", "test_gate.py::many_seconds"),
    Mutation("utilisation of the card", "src/region.c", "busy * ALL_SMS / fgpu_limits.gpu[gpu].sm_points / 10000000u", "busy / 10000000u", "test_gate.py::utilisation"),
    Mutation("whole GPUs gated", "src/gate.c", "fgpu_limits.gpu[here.gpu].sm_points == ALL_SMS || flight_is", "flight_is", "test_gate.py::whole_gpu_is_not"),
    Mutation("arbiter not asked", "src/turn.c", "return !is_on_budget(alive, now) && alive;", "return false;", "test_arbiter.py::gets_its_share"),
    Mutation("budget beside a live arbiter", "src/turn.c", "return is_silent && !are_others;", "return !wire.heard;", "test_connections.py::not_on_top"),
    Mutation("a silent arbiter waited for", "src/turn.c", "return is_silent && !are_others;", "return false;", "test_connections.py::silent_arbiter"),
    Mutation("wall time charged to all", "arbiter/run_queue.c", "        pay(m, cost);", "        pay(m, 2 * cost);", "test_arbiter.py::gets_its_share", "test/arbiter"),
    Mutation("every busy one has a part", "arbiter/run_queue.c", "m != q->holder && m->busy && m->overrun_since;", "m != q->holder && m->busy;", "test_liars.py::cheaper", "test/arbiter"),
    Mutation("debtors have a part", "arbiter/run_queue.c", " && m->bucket_ns > -(int64_t)DEBT_NS;", ";", "test_liars.py::accomplices", "test/arbiter"),
    Mutation("every busy one waited for", "arbiter/run_queue.c", "    else if (!m->busy && m != q->holder && m->released_at && now - m->released_at < LATE_NS)\n        m->overrun_since = m->released_at;", "    else if (!m->busy && m != q->holder)\n        m->overrun_since = now;", "test_liars.py::delay", "test/arbiter"),
    Mutation("no room made", "arbiter/processes.c", "    if (idlest)\n        drop(idlest, now);\n    return idlest != NULL;", "    return false;", "test_connections.py::idle", "arbiter-x86_64"),
    Mutation("as many connections as they like", "arbiter/processes.c", "if (session->connected <", "if (true || session->connected <", "test_connections.py::keep_nobody", "arbiter-x86_64"),
    Mutation("accepting in a loop", "arbiter/processes.c", "            turn_deaf(session);", "            (void)turn_deaf;", "test_connections.py::rests", "arbiter-x86_64"),
    Mutation("debt without an end", "arbiter/run_queue.c", ": -LARGEST_DEBT_NS,", ": INT64_MIN,", "test_liars.py::eleven_days", "test/debt"),
    Mutation("spare time not given", "arbiter/run_queue.c", "(m->bucket_ns > 0 || m->burst)", "m->bucket_ns > 0", "test_arbiter.py::left_idle", "test/arbiter"),
    Mutation("spare time for all", "arbiter/run_queue.c", "(m->bucket_ns > 0 || m->burst)", "true", "test_arbiter.py::alone_a_session", "test/arbiter"),
    Mutation("the dead keep their turn", "arbiter/processes.c", "!watch(process->pidfd, &process->death)", "false", "test_arbiter.py::killed_process", "test/arbiter"),
    Mutation("another arbiter's connection kept", "src/turn.c", "(!alive || atomic_load_explicit(&page->epoch, memory_order_acquire) != epoch)", "(false)", "test_arbiter.py::adopts"),
    Mutation("queues in flight forgotten", "src/queues.c", "= !in_flight(queue) && !queue->entering", "= !queue->entering", "test_arbiter.py::short_kernels"),
    Mutation("all queues looked at", "src/queue.h", "AT_ONCE = 128", "AT_ONCE = 1000000", "test_growth.py::launch"),
    Mutation("a table that does not grow", "src/ledger.c", "        grow(kind);\n", "        (void)grow;\n", "test_growth.py::allocation"),
    Mutation("order not looked at", "src/scope.c", "    if (late)\n", "    if (false && late)\n", "test_scope.py::preloaded_before"),
    Mutation("nothing bound anew", "src/scope.c", "                *slot = ours;\n", "                (void)ours;\n", "test_scope.py::preloaded_before"),
    Mutation("tables left alone", "src/scope.c", "        if (ours)\n", "        if (false && ours)\n", "test_scope.py::however"),
    Mutation("deep binding unseen", "src/scope.c", "arguments[1] & RTLD_DEEPBIND", "arguments[1] & 0", "test_scope.py::however"),
    Mutation("namespaces without a hook", "src/scope.c", "(Lmid_t)arguments[2] == LM_ID_NEWLM) {", "false) {", "test_scope.py::however"),
    Mutation("nonsense accepted", "arbiter/processes.c", "        else\n            hang_up(connection, now);", "", "test_arbiter.py::liar", "test/arbiter"),
    Mutation("slices of no cost", "sim/timeline.c", "g->switching = g->current ? sim_config.switch_ns : 0;", "g->switching = 0;", "test_timeline.py::switch", "sim/libcuda.so.1"),
    Mutation("the dead work on", "sim/timeline.c", "        c->process = 0;\n", "", "test_timeline.py::killed", "sim/libcuda.so.1"),
    Mutation("ledger not locked", "src/ledger.c", "    LOCKED(ledger_lock);\n    insert(", "    insert(", "test_sanitizers.py::threads and tsan", "test/libfgpu-tsan.so"),
    Mutation("gate not locked", "src/gate.c", "    LOCKED(gate);\n    uint64_t now = clock_now();", "    uint64_t now = clock_now();", "test_sanitizers.py::threads and tsan", "test/libfgpu-tsan.so"),
    Mutation("entry used after free", "src/ledger.c", "        undo(entry->hold);\n    free(entry);", "        undo(entry->hold), undo(entry->hold);\n    free(entry);", "test_sanitizers.py::asan", "test/libfgpu-asan.so"),
    Mutation("a constructor", "src/system.c", "uint64_t clock_now(void) {", "__attribute__((constructor)) uint64_t clock_now(void) {", "test_library.py::constructor", "libfgpu.so"),
    Mutation("a message", "src/driver.c", "static void in_child(void) {", 'static void in_child(void) {\n    printf("x");', "test_library.py::output"),
    Mutation("newer glibc", "Makefile", "linux-gnu.2.17", "linux-gnu.2.34", "test_library.py::glibc", "libfgpu.so"),
    Mutation("more exported", "src/system.c", "uint64_t clock_now(void) {", '__attribute__((visibility("default"))) uint64_t clock_now(void) {', "test_library.py::exports", "libfgpu.so"),
    Mutation("every program attached", "src/scope.c", "    if (late)\n", "    fgpu_attach();\n    if (late)\n", "test_library.py::untouched"),
    Mutation("failed captures stay charged", "src/pools.c", "        ledger_drop_all(HELD_GRAPH, graph);\n    return rc;", "        (void)graph;\n    return rc;", "test_memory.py::capture_that_fails"),
    Mutation("a stream's end ends no capture", "src/gate.c", "return capture_ended(now ? CALL(name, (stream)) : CUDA_SUCCESS, stream, NULL);", "return now ? CALL(name, (stream)) : CUDA_SUCCESS;", "test_memory.py::capture_that_fails"),
    Mutation("waiting streams take few launches", "src/flight.c", " || queue_has_waited(queue, STUCK_NS)", "", "test_gate.py::waits_for_the_program"),
    Mutation("waits not seen", "src/flight.c", "queue->told_to_wait = !queue->open;", "queue->told_to_wait = false;", "test_gate.py::unfinished_wait"),
    Mutation("a wait ends no batch", "src/flight.c", "if (queue->seen && queue->open)", "if (false)", "test_gate.py::behind_unfinished_work"),
    Mutation("who waits counts as at work", "src/flight.c", "    if (sums->working > sums->behind) return false;\n    if (now", "    if (sums->working) return false;\n    if (now", "test_gate.py::unfinished_wait"),
    Mutation("a kernel behind a wait is paid in part", "src/flight.c", "        start = least(start, now - busy);\n", "        (void)0;\n", "test_gate.py::paid_whole"),
    Mutation("every wait ends a batch", "src/flight.c", "queue->split_at <= now && ", "", "test_gate.py::wait_for_each_other"),
    Mutation("launches of waiting streams are free", "src/flight.c", "        queue->next--;\n        queue->open = true;", "        (void)0;", "test_gate.py::is_paid"),
    Mutation("kernels of threads at a launch are free", "src/flight.c", "    if (queue->entering)\n        open_batch(queue, clock_now());\n", "", "test_threads.py::another_threads"),
    Mutation("events recorded with the lock", "src/gate.c", "    gate_let_go();\n    flight_record(pass->queue, pass->stream, end);\n", "    flight_record(pass->queue, pass->stream, end);\n    gate_let_go();\n", "test_threads.py::full_stream and 1018"),
    Mutation("contexts reset under the helper", "src/contexts.c", "        flight_await_helper(primary[gpu], NULL);\n", "        (void)0;\n", "test_threads.py::not_reset"),
    Mutation("streams end under launches", "src/flight.c", "queue->doomed = is_used(queue);", "queue->doomed = false;", "test_threads.py::end_under"),
    Mutation("a stream's end waits for the helper", "src/flight.c", "if (!queue) return true;", "if (!queue) return true;\n    flight_await_helper(queue->context, NULL);", "test_threads.py::for_ever"),
    Mutation("captures wait for ever", "src/flight.c", "(context || clock_now() - began < PATIENCE_NS)", "true", "test_threads.py::for_ever"),
    Mutation("green contexts are kept", "src/contexts.c", "        doomed(context);", "        (void)context;", "test_threads.py::green"),
    Mutation("launches behind others are done at once", "src/flight.c", "    if (queue->beside && queue->due > now) return NULL;\n", "", "test_gate.py::many_streams"),
    Mutation("the first to end has the time of all", "src/flight.c", "    if (ended[gpu].launches < queue_sums(gpu)->launches) return;\n", "", "test_gate.py::many_streams"),
    Mutation("launches at work closed by an estimate", "src/flight.c", "(ask || !queue->beside) && is_busy", "ask && is_busy", "test_threads.py::is_charged"),
    Mutation("the driver asked at the end", "src/gate.c", "if (!flight_is_held(gpu))", "if (!flight_any(gpu, clock_now()))", "test_threads.py::after_its_end"),
    Mutation("preload file writable", "mounts.py", '"/etc/ld.so.preload"),', '"/etc/ld.so.preload", read_only=False),', "test_docker.py::put_the_hook_aside"),
    Mutation("slot lock ignored", "src/region.c", "probe.l_type != F_UNLCK", "false", "test_docker.py::pid_namespace", "libfgpu.so"),
    Mutation("slots counted by others", "src/region.c", "return (uint32_t)least(__atomic_load_n(&region->high, __ATOMIC_RELAXED), REGION_SLOTS);", "return region->high;", "test_fuzz.py::kept and region", "test/fuzz-region"),
    Mutation("own count written by others", "src/region.c", "most(total(gpu), own.used[gpu])", "total(gpu)", "test_fuzz.py::kept and region", "test/fuzz-region"),
    Mutation("bytes shared as others say", "src/region.c", "    if (!is_within(gpu, own.used[gpu], bytes)) return false;\n", "", "test_memory_shared.py::forged"),
    Mutation("lock of any kind", "src/region.c", "region && region->lock.__data.__kind == lock_kind", "region != NULL", "test_fuzz.py::kept and region", "test/fuzz-region"),
    Mutation("spans counted by others", "src/region.c", "spans = spans > REGION_SPANS ? 0 : spans;", ";", "test_fuzz.py::kept and region", "test/fuzz-region"),
    Mutation("endless debt", "src/region.c", "budget < -DEBT_NS ? -DEBT_NS : budget", "budget", "test_fuzz.py::kept and region", "test/fuzz-region"),
    Mutation("a standstill is charged", "arbiter/run_queue.c", "least(now - q->at, GRANT_STALE_NS)", "now - q->at", "test_fuzz.py::kept and arbiter", "test/fuzz-arbiter"),
]  # fmt: skip


def is_noticed(mutation: Mutation, copy: Path) -> bool:
    """Apply the mutation to the copy, run its tests, and undo it."""
    file = copy / mutation.file
    original = file.read_text()
    if mutation.old not in original:
        raise LookupError(f"{mutation.name}: {mutation.file} has no such text any more")
    file.write_text(original.replace(mutation.old, mutation.new, 1))
    make = ["make", "-s", "-C", str(copy), f"PYTHON={sys.executable}", "EXTRA=-w"]
    built = subprocess.run([*make, str(copy / "build" / mutation.rebuild)], capture_output=True, check=False)
    subprocess.run([*make, "-t", "tests"], capture_output=True, check=True)
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:django", "-p", "no:cacheprovider"]
    command = [*pytest, str(copy / "tests" / mutation.test_file), "-k", mutation.words]
    path = f"{copy.parent}:{PACKAGE.parent}"  # the copy of this package, and what its tests share with others
    environment = os.environ | {"PYTHONPATH": path}
    result = subprocess.run(command, cwd=copy.parent, env=environment, capture_output=True, check=False)
    file.write_text(original)
    if built.returncode:
        raise LookupError(f"{mutation.name}: does not compile\n{built.stderr.decode()}")
    return result.returncode == 1


def main(words: list[str]) -> int:
    """Return the number of mutations that no test noticed."""
    chosen = [mutation for mutation in MUTATIONS if all(word in mutation.name for word in words)]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="fgpu-mutations-") as folder:
        copy = Path(folder) / "fgpu"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for mutation in chosen:
            try:
                verdict = "noticed" if is_noticed(mutation, copy) else "MISSED"
            except LookupError as error:
                verdict = f"BROKEN: {error}"
            missed += verdict != "noticed"
            sys.stdout.write(f"{verdict:8} {mutation.name}\n")
            sys.stdout.flush()
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
