"""The passage of a gateway to its engine: what goes through, what does not, and what is left when things break."""

import asyncio
import hashlib
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from docker.api import APIClient

from sessions.proxy import passage as passage_module
from sessions.proxy import passes
from sessions.proxy.engine import GATEWAY_PREFIX, HEAD_LIMIT, Engine, ExecFailed
from sessions.proxy.exec_stream import ExecStream, is_running
from sessions.proxy.output import last_lines
from sessions.proxy.passage import Passage, Refused, exec_config, is_of_session, signer
from sessions.proxy.shell import Shell
from sessions.proxy.signing import EXEC, Keys
from sessions.runtime.container_config import HOST_LABEL, INSTALLATION_LABEL, container_name
from tests.containers import ENGINE_URL, Container, running_container
from tests.ports import free_port
from tests.tiny_image import ensure_tiny_image
from tests.wait import SECONDS

HOST = "gpu7"
KEYS = Keys(["k:" + "k" * 32])
OURS = {INSTALLATION_LABEL: "passage-test", HOST_LABEL: HOST}


def of_session(session: str) -> dict[str, str]:
    """Return the labels of a container of this session."""
    return {**OURS, "gpuplatform.session": session, "gpuplatform.attempt": "1"}


@contextmanager
def session_container() -> Iterator[Container]:
    """A container of a session on this host."""
    session = secrets.token_hex(8)
    image = ensure_tiny_image()
    with running_container(image, name=container_name(session, 1), labels=of_session(session)) as running:
        yield running


@pytest.fixture(scope="module")
def shared() -> Iterator[Container]:
    """A container for tests that leave nothing in it."""
    with session_container() as running:
        yield running


@pytest.fixture
def container() -> Iterator[Container]:
    """A container of a test's own."""
    with session_container() as running:
        yield running


@asynccontextmanager
async def gateway(engine_url: str = ENGINE_URL, port: int = 0) -> AsyncIterator[tuple[str, Passage]]:
    """A gateway in this process, and its URL."""
    passage = Passage(Engine(engine_url), KEYS, HOST, OURS)
    server = await asyncio.start_server(passage.serve, "127.0.0.1", port, limit=HEAD_LIMIT)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", passage
        server.close()
        await passage.close()


@pytest_asyncio.fixture
async def passed() -> AsyncIterator[tuple[str, Passage]]:
    """The gateway of a test."""
    async with gateway() as running:
        yield running


@pytest_asyncio.fixture
async def far(passed: tuple[str, Passage]) -> Engine:
    """The engine behind the gateway."""
    return Engine(passed[0], signer(KEYS, HOST))


async def settled(passage: Passage) -> None:
    """Wait until the gateway has no connection any more."""
    await eventually(lambda: passage.connections == 0)


async def eventually(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await asyncio.to_thread(is_so):
            await asyncio.sleep(0.02)


async def read_until(stream: ExecStream, text: str) -> bytes:
    """Return the output up to and including `text`."""
    output = b""
    async with asyncio.timeout(SECONDS):
        while text.encode() not in output:
            data = await stream.read()
            assert data, f"ended before {text!r}: {output!r}"
            output += data
    return output


async def raw(url: str, request: bytes) -> bytes:
    """Return all that the gateway answers to these bytes."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    async with asyncio.timeout(SECONDS):
        with suppress(ConnectionError):  # it may have heard enough before we have said all
            writer.write(request)
            await writer.drain()
        answer = b""
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                answer += data
    writer.close()
    return answer


def written(
    method: str, path: str, body: object = None, *, headers: Mapping[str, str] | None = None, sign: Any = None
) -> bytes:
    """Return a request; its pass is right unless `headers` or `sign` say otherwise."""
    content = b"" if body is None else json.dumps(body).encode()
    signed = (sign or signer(KEYS, HOST))(method, path, content)
    lines = {"Host": "engine", "Content-Length": str(len(content)), **signed, **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {GATEWAY_PREFIX}{path} HTTP/1.1\r\n{head}\r\n".encode() + content


# --- what goes through


@pytest.mark.docker
async def test_a_shell_works_through_the_gateway_and_leaves_nothing(
    passed: tuple[str, Passage], far: Engine, shared: Container
) -> None:
    shell = await Shell.start(far, shared.id)
    await shell.resize(132, 43)
    await shell.write("echo grüße $((6*7)); busybox stty size; exit 3\r".encode())
    assert "grüße 42\r\n43 132" in (await read_until(shell, "43 132")).decode()
    while await shell.read():
        pass
    assert await shell.exit_code() == 3
    assert await shell.is_container_running()
    await shell.hang_up()
    await settled(passed[1])
    await eventually(lambda: not shared.processes())


@pytest.mark.docker
async def test_hanging_up_through_the_gateway_ends_what_the_shell_runs(
    passed: tuple[str, Passage], far: Engine, shared: Container
) -> None:
    shell = await Shell.start(far, shared.id)
    await shell.write(b"echo rea''dy; sleep 1000\r")
    await read_until(shell, "ready")
    await shell.hang_up()
    await eventually(lambda: not shared.processes())
    await settled(passed[1])


@pytest.mark.docker
async def test_what_the_container_wrote_is_read_as_on_its_own_host(far: Engine) -> None:
    session = secrets.token_hex(8)
    client = APIClient(ENGINE_URL, version="auto")
    script = "for n in 1 2 3; do echo out $n; echo err $n >&2; sleep 0.01; done"
    name = container_name(session, 1)
    client.create_container(ensure_tiny_image(), ["sh", "-c", script], name=name, labels=of_session(session))
    try:
        client.start(name)
        client.wait(name)
        assert await last_lines(far, name, 100) == client.logs(name).decode()
        assert await last_lines(far, name, 2) == client.logs(name, tail=2).decode()
    finally:
        client.remove_container(name)
        client.close()
    assert await last_lines(far, name, 100) == ""


@pytest.mark.docker
async def test_20_mb_of_output_come_whole_to_a_slow_reader_and_the_gateway_holds_little_of_it(
    far: Engine, shared: Container
) -> None:
    shared.run("head -c 20000000 /dev/urandom > /tmp/big")
    stream = await ExecStream.open(far, shared.id, ["sh", "-c", "busybox stty raw; cat /tmp/big"], {})
    digest = hashlib.md5()
    while data := await stream.read():
        digest.update(data)
        await asyncio.sleep(0.0005)
    stream.close()
    assert digest.hexdigest() == shared.run("busybox md5sum < /tmp/big").split()[0]


@pytest.mark.docker
async def test_an_unread_shell_stops_writing_behind_the_gateway_too(far: Engine, container: Container) -> None:
    stream = await ExecStream.open(far, container.id, ["sh", "-c", "busybox yes | busybox tee /tmp/written"], {})
    sizes = [-1, -2]
    async with asyncio.timeout(SECONDS):
        while sizes[-1] != sizes[-2] or sizes[-1] == 0:
            await asyncio.sleep(0.3)
            sizes.append(int(await asyncio.to_thread(container.run, "busybox wc -c < /tmp/written")))
    assert sizes[-1] < 16 * 2**20  # what the sockets on the way take, whose size the kernel chooses
    stream.close()


@pytest.mark.docker
async def test_a_paste_waits_for_a_process_that_does_not_read(far: Engine, shared: Container) -> None:
    text = secrets.token_bytes(1_000_000).hex().encode()
    command = ["sh", "-c", "busybox stty raw -echo; echo ready; sleep 0.5; head -c 2000000 | busybox md5sum"]
    stream = await ExecStream.open(far, shared.id, command, {})
    await read_until(stream, "ready")
    await stream.write(text)
    assert hashlib.md5(text).hexdigest().encode() in await read_until(stream, "-")
    stream.close()


@pytest.mark.docker
async def test_a_container_that_is_gone_or_stopped_is_told_in_words(far: Engine, container: Container) -> None:
    container.stop()
    with pytest.raises(ExecFailed, match="is not running"):
        await Shell.start(far, container.id)
    assert not await is_running(far, container.id)
    assert not await is_running(far, "gp-none-1")
    with pytest.raises(ExecFailed, match="no longer exists"):
        await Shell.start(far, "gp-none-1")


# --- what does not


REFUSED = b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
FAR_KEYS = Keys(["k:" + "x" * 32])


@pytest.mark.docker
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/containers/json?all=1", None),
        ("GET", "/info", None),
        ("GET", "/images/json", None),
        ("GET", "/containers/{id}/top", None),
        ("GET", "/containers/{id}/archive?path=/etc", None),
        ("PUT", "/containers/{id}/archive?path=/", None),
        ("GET", "/containers/{id}/json?size=1", None),
        ("GET", "/containers/{id}/logs", None),
        ("GET", "/containers/{id}/logs?stdout=1&stderr=1&tail=5&follow=1", None),
        ("GET", "/containers/{id}/logs?stdout=1&stderr=1&tail=all", None),
        ("POST", "/containers/{id}/json", {}),
        ("POST", "/containers/{id}/start", None),
        ("POST", "/containers/{id}/stop", None),
        ("POST", "/containers/{id}/kill", None),
        ("POST", "/containers/{id}/attach?stream=1&stdin=1", None),
        ("DELETE", "/containers/{id}", None),
        ("POST", "/containers/create", {"Image": "x"}),
        ("POST", "/containers/../images/create/exec", {"Cmd": ["x"]}),
        ("POST", "/containers/{id}%2f..%2fx/exec", {"Cmd": ["x"]}),
        ("POST", "/v1.41/containers/{id}/exec", {"Cmd": ["x"]}),
        ("POST", "//containers/{id}/exec", {"Cmd": ["x"]}),
        ("POST", "/containers/{id}/exec", {"Cmd": ["id"], "Privileged": True}),
        ("POST", "/containers/{id}/exec", {"Cmd": ["id"], "User": "root"}),
        ("POST", "/containers/{id}/exec", {"Cmd": "id"}),
        ("POST", "/containers/{id}/exec", {"Cmd": [1]}),
        ("POST", "/containers/{id}/exec", ["Cmd"]),
        ("POST", "/containers/{id}/exec", None),
        ("GET", "/exec/{exec}/json", None),
        ("POST", "/exec/{exec}/start", {"Detach": True}),
        ("POST", "/exec/{handle}/start", {"Detach": True, "Tty": True}),
        ("POST", "/exec/{handle}/start", {"Detach": False, "Tty": True, "ConsoleSize": [1, 1]}),
        ("POST", "/exec/{handle}/resize?w=80&h=24&x=1", None),
        ("GET", "/exec/{cookie}/json", None),
    ],
)
async def test_nothing_but_execs_and_logs_goes_through(
    passed: tuple[str, Passage], shared: Container, method: str, path: str, body: object
) -> None:
    exec_id = shared.client.exec_create(shared.id, ["sleep", "1000"])["Id"]
    names = {"{id}": shared.id, "{exec}": exec_id, "{handle}": KEYS.sign(EXEC, [exec_id])}
    for name, value in {**names, "{cookie}": KEYS.sign("cookie", [exec_id])}.items():
        path = path.replace(name, value)
    assert await raw(passed[0], written(method, path, body)) == REFUSED
    assert "sleep 1000" not in shared.processes()


@pytest.mark.docker
@pytest.mark.parametrize(
    "labels",
    [
        {},
        {INSTALLATION_LABEL: "another"},
        {HOST_LABEL: "gpu8"},
        {"gpuplatform.attempt": "2"},
        {"gpuplatform.attempt": "one"},
        {"gpuplatform.session": "another"},
    ],
    ids=["none", "installation", "host", "attempt", "no attempt", "session"],
)
async def test_containers_that_are_not_of_a_session_on_this_host_are_out_of_reach(
    passed: tuple[str, Passage], labels: dict[str, str]
) -> None:
    session = secrets.token_hex(8)
    has = of_session(session) | labels if labels else {}
    with running_container(ensure_tiny_image(), name=container_name(session, 1), labels=has) as foreign:
        for request in (
            written("GET", f"/containers/{foreign.id}/json"),
            written("GET", f"/containers/{foreign.id}/logs?stdout=1&stderr=1&tail=5"),
            written("POST", f"/containers/{foreign.id}/exec", {"Cmd": ["id"]}),
        ):
            assert await raw(passed[0], request) == REFUSED


def test_a_sandbox_is_no_session() -> None:
    labels = {**OURS, "gpuplatform.sandbox": "1"}
    assert not is_of_session({"Name": "/gp-net-abc-1", "Config": {"Labels": labels}}, OURS)
    assert not is_of_session({"Name": "/gp-None-1", "Config": {"Labels": None}}, OURS)


def test_an_exec_is_asked_for_as_it_was_understood() -> None:
    asked = {"Cmd": ["sh"], "Env": ["A=1"], "Tty": True, "AttachStdin": False, "DetachKeys": "ctrl-@"}
    assert exec_config(asked) == asked
    with pytest.raises(Refused, match="WorkingDir"):
        exec_config({"Cmd": ["sh"], "WorkingDir": "/"})


@pytest.mark.docker
@pytest.mark.parametrize(
    ("sign", "reason"),
    [
        (lambda *call: {}, "not ours"),
        (lambda *call: {passes.HEADER: ""}, "not ours"),
        (signer(FAR_KEYS, HOST), "not ours"),
        (signer(KEYS, "gpu8"), "for something else"),
        (lambda method, path, body: signer(KEYS, HOST)("POST", path, body), "for something else"),
        (lambda method, path, body: signer(KEYS, HOST)(method, path + "x", body), "for something else"),
        (lambda method, path, body: signer(KEYS, HOST)(method, path, b"{}"), "for something else"),
        (lambda *call: {passes.HEADER: passes.issue(KEYS, ["jupyter--abc"])}, "for something else"),
    ],
    ids=["none", "empty", "wrong key", "another host", "another method", "another path", "another body", "an app's"],
)
async def test_without_a_pass_for_just_this_request_there_is_a_bare_403(
    passed: tuple[str, Passage], shared: Container, caplog: pytest.LogCaptureFixture, sign: Any, reason: str
) -> None:
    request = written("GET", f"/containers/{shared.id}/json", sign=sign)
    assert await raw(passed[0], request) == REFUSED
    assert reason in caplog.text
    await settled(passed[1])


@pytest.mark.docker
async def test_a_pass_that_is_over_is_refused_and_the_log_asks_for_the_clocks(
    passed: tuple[str, Passage], far: Engine, shared: Container, caplog: pytest.LogCaptureFixture
) -> None:
    old = time.time() - passes.LIFE_SECONDS - passes.SKEW_SECONDS - 5
    sign = signer(KEYS, HOST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "unix_time", lambda: old)
        request = written("GET", f"/containers/{shared.id}/json", sign=sign)
    assert await raw(passed[0], request) == REFUSED
    assert "do the clocks agree" in caplog.text


PLAIN = "GET /.gp/engine/info HTTP/1.1\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        (PLAIN + "Host: engine\r\n\r\n").encode(),
        written("GET", "/containers/gp-none-1/json").replace(b"\r\n", b"\r\nX-GP-Gateway: a\r\n", 1),
        (PLAIN + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n").encode(),
        (PLAIN + "X: " + "x" * 200_000 + "\r\n\r\n").encode(),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        written("GET", "/info", headers={"Transfer-Encoding": "chunked"}),
        written("POST", "/info", headers={"Content-Length": "99999999"}),
        written("POST", "/info", headers={"Content-Length": "-1"}),
    ],
    ids=range(10),
)
async def test_a_stranger_gets_a_bare_403(passed: tuple[str, Passage], request_bytes: bytes) -> None:
    assert await raw(passed[0], request_bytes) == REFUSED
    await settled(passed[1])


async def test_a_stranger_who_says_nothing_is_cut_off(
    passed: tuple[str, Passage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passage_module, "REQUEST_SECONDS", 0.05)
    assert await raw(passed[0], b"GET /") == b""
    assert await raw(passed[0], written("POST", "/info", headers={"Content-Length": "5"})) == b""
    await settled(passed[1])


# --- what is left when things break


async def test_a_gateway_that_is_away_is_told_in_words() -> None:
    async with gateway(port=free_port()) as (url, _):
        pass
    with pytest.raises(ExecFailed, match="gateway of the session's host cannot be reached"):
        await Shell.start(Engine(url, signer(KEYS, HOST)), "gp-none-1")


async def test_an_engine_that_is_away_behind_the_gateway_is_told_in_words(tmp_path: Path) -> None:
    async with gateway(f"unix://{tmp_path}/none.sock") as (url, passage):
        with pytest.raises(ExecFailed, match=r"^The container engine cannot be reached\.$"):
            await Shell.start(Engine(url, signer(KEYS, HOST)), "gp-none-1")
        await settled(passage)


@pytest.mark.docker
async def test_wrong_keys_are_told_in_words(passed: tuple[str, Passage], shared: Container) -> None:
    far = Engine(passed[0], signer(FAR_KEYS, HOST))
    for attempt in (Shell.start(far, shared.id), last_lines(far, shared.id, 5), is_running(far, shared.id)):
        with pytest.raises(ExecFailed, match="gateway of the session's host refused the request"):
            await attempt


@pytest.mark.parametrize("url", ["https://gpu7:1", "http://gpu7", "http://gpu7:99999", "unix:///x", "tcp://gpu7:1", ""])
async def test_a_gateway_of_another_kind_of_address_is_refused_in_words(url: str) -> None:
    with pytest.raises(ExecFailed, match="not http://host:port"):
        await Engine(url, signer(KEYS, HOST)).request("GET", "/x")


@pytest.mark.docker
async def test_a_gateway_that_restarts_ends_the_shell_at_once_and_still_hangs_it_up(
    shared: Container, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with gateway(port=free_port()) as (url, passage):
        shell = await Shell.start(Engine(url, signer(KEYS, HOST)), shared.id)
        await shell.write(b"echo rea''dy; sleep 1000\r")
        await read_until(shell, "ready")
        await eventually(lambda: passage.connections == 1)
    async with asyncio.timeout(SECONDS):
        assert await shell.read() == b""
    assert passage.connections == 0
    async with gateway(port=urlsplit(url).port or 0) as (_, again):
        assert await shell.is_container_running() is True
        await shell.hang_up()
        await eventually(lambda: not shared.processes())
        await settled(again)
    assert caplog.records == []


@pytest.mark.docker
async def test_a_web_process_that_vanishes_leaves_no_connection_at_the_gateway_nor_the_engine(
    passed: tuple[str, Passage], far: Engine, shared: Container
) -> None:
    shells = [await Shell.start(far, shared.id) for _ in range(5)]
    await eventually(lambda: passed[1].connections == 5)
    for shell in shells:
        shell.close()
    await settled(passed[1])


@pytest.mark.docker
async def test_no_request_leaves_a_task_or_an_error_behind(
    passed: tuple[str, Passage], far: Engine, shared: Container, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    loop = asyncio.get_running_loop()
    before = len(asyncio.all_tasks())
    for _ in range(20):
        assert await is_running(far, shared.id)
        await raw(passed[0], b"nonsense\r\n\r\n")
    await eventually(lambda: len(asyncio.all_tasks(loop)) <= before)
    assert caplog.records == []
