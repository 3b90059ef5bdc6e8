"""What programs rely on beside amounts and time: memory has a content, images name what can be found, functions of the
host run in their stream's turn, in a share as without the hook."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fgpu.tests.host import Host, Session

PRELUDE = """
from ctypes import *
cuda = CDLL("libcuda.so.1")
def call(name, *args):
    assert getattr(cuda, name)(*args) == 0, name
def at(address):
    return c_ulonglong(address)
def new(kind, name, *args):
    out = kind()
    call(name, byref(out), *args)
    return out
call("cuInit", 0)
context = new(c_void_p, "cuDevicePrimaryCtxRetain", 0)
call("cuCtxSetCurrent", context)
def read(address, n):
    got = create_string_buffer(n)
    call("cuMemcpyDtoH_v2", got, at(address), c_size_t(n))
    return got.raw
"""
PTX = """
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .f32 table[4];
.visible .entry first(.param .u64 p) { ret; }
.visible .entry second(.param .u64 ns) { ret; }
"""


@pytest.fixture(params=["plain", "in a share"])
def session(request: pytest.FixtureRequest, host: Host) -> Session:
    return host.bare() if request.param == "plain" else host.session()


def run(session: Session, program: str) -> str:
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(program)]
    result = subprocess.run(command, env=session.environment(), capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_copies_and_fills_change_what_is_read(session: Session) -> None:
    run(
        session,
        """
        a, b = (new(c_ulonglong, "cuMemAlloc_v2", c_size_t(64)).value for _ in range(2))
        assert read(a, 4) == bytes(4)
        call("cuMemcpyHtoD_v2", at(a), b"abcd", c_size_t(4))
        call("cuMemsetD16_v2", at(a + 4), c_ushort(0x4142), c_size_t(2))
        call("cuMemcpyDtoD_v2", at(b + 8), at(a), c_size_t(8))
        assert read(b, 16) == bytes(8) + b"abcdBABA"
        assert cuda.cuMemcpyHtoD_v2(at(a + 62), b"abcd", c_size_t(4)) != 0
        call("cuMemFree_v2", at(a))
        assert read(new(c_ulonglong, "cuMemAlloc_v2", c_size_t(64)).value, 4) == bytes(4)
        """,
    )


def test_an_image_names_its_kernels_and_variables(session: Session) -> None:
    run(
        session,
        f"""
        module = new(c_void_p, "cuModuleLoadData", c_char_p({PTX.encode()!r}))
        new(c_void_p, "cuModuleGetFunction", module, b"first")
        assert cuda.cuModuleGetFunction(byref(c_void_p()), module, b"third") == 500
        where, size = c_ulonglong(), c_size_t()
        call("cuModuleGetGlobal_v2", byref(where), byref(size), module, b"table")
        assert size.value == 16
        assert cuda.cuModuleLoadData(byref(c_void_p()), b"no image") == 200
        """,
    )


def test_functions_of_the_host_run_in_their_streams_turn(session: Session) -> None:
    run(
        session,
        f"""
        stream = new(c_void_p, "cuStreamCreate", 1)
        module = new(c_void_p, "cuModuleLoadData", c_char_p({PTX.encode()!r}))
        kernel = new(c_void_p, "cuModuleGetFunction", module, b"second")
        said, event = [], new(c_void_p, "cuEventCreate", 0)
        function = CFUNCTYPE(None, c_void_p)(lambda _: said.append(cuda.cuEventQuery(event)))
        params = (c_void_p * 1)(cast(pointer(c_ulonglong(20_000_000)), c_void_p))
        call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, None)
        call("cuEventRecord", event, stream)
        call("cuLaunchHostFunc", stream, function, None)
        call("cuStreamSynchronize", stream)
        assert said == [0], said
        """,
    )


def test_a_graph_does_what_was_recorded(session: Session) -> None:
    run(
        session,
        """
        stream = new(c_void_p, "cuStreamCreate", 1)
        a = new(c_ulonglong, "cuMemAlloc_v2", c_size_t(64)).value
        call("cuStreamBeginCapture_v2", stream, 0)
        call("cuMemsetD8Async", at(a), c_ubyte(7), c_size_t(4), stream)
        graph = c_void_p()
        call("cuStreamEndCapture", stream, byref(graph))
        assert read(a, 4) == bytes(4)
        exec_ = new(c_void_p, "cuGraphInstantiateWithFlags", graph, c_ulonglong(0))
        call("cuGraphLaunch", exec_, stream)
        call("cuStreamSynchronize", stream)
        assert read(a, 4) == bytes([7] * 4)
        """,
    )


def test_a_recorded_launch_outlives_its_parameters(session: Session) -> None:
    run(
        session,
        f"""
        libc = CDLL(None)
        libc.mmap.restype = c_void_p
        page = libc.mmap(None, c_size_t(4096), 3, 0x22, -1, c_size_t(0))
        params = (c_void_p * 1).from_address(page)
        params[0] = page + 64
        c_ulonglong.from_address(page + 64).value = 1000
        module = new(c_void_p, "cuModuleLoadData", c_char_p({PTX.encode()!r}))
        kernel = new(c_void_p, "cuModuleGetFunction", module, b"second")
        stream = new(c_void_p, "cuStreamCreate", 1)
        call("cuStreamBeginCapture_v2", stream, 0)
        call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, c_void_p(page), None)
        graph = c_void_p()
        call("cuStreamEndCapture", stream, byref(graph))
        libc.munmap(c_void_p(page), c_size_t(4096))
        call("cuGraphLaunch", new(c_void_p, "cuGraphInstantiateWithFlags", graph, c_ulonglong(0)), stream)
        call("cuStreamSynchronize", stream)
        """,
    )


def test_a_graph_keeps_a_copy_of_its_child(session: Session) -> None:
    run(
        session,
        """
        stream = new(c_void_p, "cuStreamCreate", 1)
        a = new(c_ulonglong, "cuMemAlloc_v2", c_size_t(64)).value
        call("cuStreamBeginCapture_v2", stream, 0)
        call("cuMemsetD8Async", at(a), c_ubyte(7), c_size_t(4), stream)
        child = c_void_p()
        call("cuStreamEndCapture", stream, byref(child))
        graph = new(c_void_p, "cuGraphCreate", 0)
        new(c_void_p, "cuGraphAddChildGraphNode", graph, None, c_size_t(0), child)
        call("cuGraphDestroy", child)
        spoilt = [create_string_buffer(b"x" * size) for size in range(8, 600, 8)]
        call("cuGraphLaunch", new(c_void_p, "cuGraphInstantiateWithFlags", graph, c_ulonglong(0)), stream)
        call("cuStreamSynchronize", stream)
        assert read(a, 4) == bytes([7] * 4)
        """,
    )


def test_an_image_is_read_from_a_file_as_a_whole(session: Session, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"// \xff\n".join(PTX.encode().partition(b"\n")[i] for i in (1, 2)))
    run(
        session,
        f"""
        module = new(c_void_p, "cuModuleLoad", {str(tmp_path / "image").encode()!r})
        new(c_void_p, "cuModuleGetFunction", module, b"first")
        """,
    )


def test_a_process_reads_what_another_exported(session: Session) -> None:
    said = run(
        session,
        """
        import subprocess, sys, textwrap
        a = new(c_ulonglong, "cuMemAlloc_v2", c_size_t(64)).value
        call("cuMemcpyHtoD_v2", at(a), b"mine", c_size_t(4))
        handle = (c_ubyte * 64)()
        call("cuIpcGetMemHandle", handle, at(a))
        child = '''
        class Handle(Structure):
            _fields_ = [("bytes", c_ubyte * 64)]
        handle = Handle.from_buffer_copy(bytes.fromhex(input()))
        a = new(c_ulonglong, "cuIpcOpenMemHandle_v2", handle, 1).value
        print(read(a, 4).decode())
        call("cuMemcpyHtoD_v2", at(a), b"ours", c_size_t(4))
        '''
        code = PRELUDE + textwrap.dedent(child)
        out = subprocess.run([sys.executable, "-c", code], input=bytes(handle).hex(), text=True, capture_output=True)
        print(out.stdout.strip(), out.stderr, read(a, 4).decode())
        """.replace("PRELUDE", repr(PRELUDE)),
    )
    assert said.split() == ["mine", "ours"]
