"""The engine gateway: what does not go through."""

import secrets
import time
from typing import Any

import pytest

from engine import gateway as gateway_module
from engine.containers import HOST_LABEL, INSTALLATION_LABEL, container_name
from engine.engine import Engine
from engine.gateway import EngineGateway, RequestRefusedError, exec_config, is_of_session, signer
from engine.tests.gateways import HOST, KEYS, OURS, of_session, raw, settled, written
from proxy.authorization import gateway_tokens
from proxy.authorization.signing import EXEC, Keys
from tests.containers import Container, running_container
from tests.tiny_image import ensure_tiny_image

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
    passed: tuple[str, EngineGateway], shared: Container, method: str, path: str, body: object
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
async def test_containers_of_no_local_session_are_refused(
    passed: tuple[str, EngineGateway], labels: dict[str, str]
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
    with pytest.raises(RequestRefusedError, match="WorkingDir"):
        exec_config({"Cmd": ["sh"], "WorkingDir": "/"})


@pytest.mark.docker
@pytest.mark.parametrize(
    ("sign", "reason"),
    [
        (lambda *call: {}, "not ours"),
        (lambda *call: {gateway_tokens.HEADER: ""}, "not ours"),
        (signer(FAR_KEYS, HOST), "not ours"),
        (signer(KEYS, "gpu8"), "for something else"),
        (lambda method, path, body: signer(KEYS, HOST)("POST", path, body), "for something else"),
        (lambda method, path, body: signer(KEYS, HOST)(method, path + "x", body), "for something else"),
        (lambda method, path, body: signer(KEYS, HOST)(method, path, b"{}"), "for something else"),
        (lambda *call: {gateway_tokens.HEADER: gateway_tokens.issue(KEYS, ["jupyter--abc"])}, "for something else"),
    ],
    ids=["none", "empty", "wrong key", "another host", "another method", "another path", "another body", "an app's"],
)
async def test_request_without_matching_token_gets_bare_403(
    passed: tuple[str, EngineGateway], shared: Container, caplog: pytest.LogCaptureFixture, sign: Any, reason: str
) -> None:
    request = written("GET", f"/containers/{shared.id}/json", sign=sign)
    assert await raw(passed[0], request) == REFUSED
    assert reason in caplog.text
    await settled(passed[1])


@pytest.mark.docker
async def test_expired_token_is_refused_with_hint_at_clocks(
    passed: tuple[str, EngineGateway], far: Engine, shared: Container, caplog: pytest.LogCaptureFixture
) -> None:
    old = time.time() - gateway_tokens.LIFETIME_SECONDS - gateway_tokens.MAX_CLOCK_SKEW_SECONDS - 5
    sign = signer(KEYS, HOST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gateway_tokens, "unix_time", lambda: old)
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
async def test_a_stranger_gets_a_bare_403(passed: tuple[str, EngineGateway], request_bytes: bytes) -> None:
    assert await raw(passed[0], request_bytes) == REFUSED
    await settled(passed[1])


async def test_a_stranger_who_says_nothing_is_cut_off(
    passed: tuple[str, EngineGateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "REQUEST_TIMEOUT_SECONDS", 0.05)
    assert await raw(passed[0], b"GET /") == b""
    assert await raw(passed[0], written("POST", "/info", headers={"Content-Length": "5"})) == b""
    await settled(passed[1])
