"""A web server of several processes: restarts lose no request, what dies comes back, the parent takes all with it."""

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import requests
from django.conf import settings

from gpuplatform.serving import web_server
from gpuplatform.serving.web_server import processes_of
from operations.machine.address import Address
from tests.fleet import START_SECONDS, memory_maps, server_processes
from tests.live import LiveServer, serving
from tests.ports import free_port
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]


@contextmanager
def requesting(url: str) -> Iterator[list[object]]:
    """Request the URL again and again, each time over a new connection; yield the list of what went wrong."""
    wrong: list[object] = []
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            try:
                response = requests.get(url, timeout=SECONDS)
                if response.status_code != 200:
                    wrong.append(response.status_code)
            except requests.RequestException as error:
                wrong.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield wrong
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.fixture(scope="module")
def web(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A web server of two processes."""
    with serving(
        tmp_path_factory.mktemp("web") / "web.log", COMPUTE_WEB_PROCESSES="2", COMPUTE_METRICS_NETWORKS="127.0.0.0/8"
    ) as running:
        yield running


def test_a_socket_that_systemd_passes_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as passed:
        monkeypatch.setattr(web_server, "PASSED_DESCRIPTOR", os.dup(passed.fileno()))
        monkeypatch.setenv("LISTEN_FDS", "1")
        for pid in (os.getppid(), os.getpid()):  # of another process, which has left its environment; and ours
            monkeypatch.setenv("LISTEN_PID", str(pid))
            with web_server.listener_at(Address("127.0.0.1", free_port())) as listener:
                assert (listener.getsockname() == passed.getsockname()) is (pid == os.getpid())
                assert "LISTEN_PID" not in os.environ


def sigterm_handler(counters: None) -> tuple[object, type]:
    """Stand for what is served; the protocol knows what SIGTERM does while this is loaded."""
    return object(), type("Protocol", (), {"while_loading": signal.getsignal(signal.SIGTERM)})


def test_sigterm_ends_a_process_that_still_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as uvicorn sets its own
    config = web_server.ServerConfig(f"{__name__}.{sigterm_handler.__name__}", processes=1)
    config.load()
    assert signal.signal(signal.SIGTERM, before) is signal.SIG_IGN
    assert vars(config.http)["while_loading"] is signal.SIG_DFL


def test_garbage_is_not_looked_for_in_what_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    before = gc.get_freeze_count()
    web_server.ServerConfig(f"{__name__}.{sigterm_handler.__name__}", processes=1).load()
    assert gc.get_freeze_count() > before


def test_wrong_settings_end_a_server_with_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "web", "--address", f"127.0.0.1:{free_port()}"],
        cwd=settings.BASE_DIR,
        env={**os.environ, "COMPUTE_WEBHOOK_NETWORKS": "nonsense", "COMPUTE_WEB_PROCESSES": "2"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "COMPUTE_WEBHOOK_NETWORKS" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_process_that_dies_while_it_is_asked_is_noticed() -> None:
    config = web_server.ServerConfig(f"{__name__}.{sigterm_handler.__name__}", processes=2)
    process = web_server.WatchedProcess(config, [])
    process.start()
    assert process.pid
    os.kill(process.pid, signal.SIGSTOP)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(process.ping, 2 * SECONDS)
        os.kill(process.pid, signal.SIGKILL)
        assert answer.result(timeout=SECONDS) is False
    process.join()


def is_well(web: LiveServer) -> bool:
    """Return whether database and Redis have answered in the short time that the health check gives them."""
    return requests.get(f"{web.url}/healthz", timeout=SECONDS).status_code == 200


def test_processes_are_replaced_without_a_lost_request(web: LiveServer) -> None:
    until(lambda: len(server_processes(web.pid)) == 2)
    before = server_processes(web.pid)
    with requesting(f"{web.url}/accounts/sign-in/") as wrong:
        os.kill(web.pid, signal.SIGHUP)
        until(lambda: len(now := server_processes(web.pid)) == 2 and not now & before, seconds=START_SECONDS)
    assert not wrong


def test_metrics_count_the_requests_of_all_processes(web: LiveServer) -> None:
    until(lambda: len(server_processes(web.pid)) == 2)

    def counted() -> float:
        text = requests.get(f"{web.url}/metrics", timeout=SECONDS).text
        lines = [line for line in text.splitlines() if line.startswith("gpuplatform_http_request_seconds_count")]
        return sum(float(line.split()[-1]) for line in lines if 'view="account_login"' in line)

    before = counted()
    for _ in range(20):  # each on a connection of its own, which either process may accept
        requests.get(f"{web.url}/accounts/sign-in/", timeout=SECONDS)
    assert counted() == before + 20


def test_a_process_that_dies_is_started_again(web: LiveServer) -> None:
    until(lambda: len(server_processes(web.pid)) == 2)
    victim = min(server_processes(web.pid))
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(server_processes(web.pid) - {victim}) == 2, seconds=START_SECONDS)
    until(lambda: is_well(web))


def test_nothing_outlives_a_parent_that_was_killed(web: LiveServer) -> None:
    until(lambda: len(server_processes(web.pid)) == 2)
    children = server_processes(web.pid)
    web.end(signal.SIGKILL)
    until(lambda: not any(memory_maps(child) for child in children))
    until(Address("127.0.0.1", web.port).is_free)  # an end closes files after it has freed the memory
    web.start()
    until(lambda: is_well(web))


def test_there_are_several_processes_unless_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, processes in ((1, 2), (3, 3), (64, 4)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid, cores=cores: set(range(cores)))
        assert (processes_of(0), processes_of(1)) == (processes, 1)


@pytest.mark.long
def test_a_reload_while_it_starts_is_no_end(tmp_path: Path) -> None:
    server = LiveServer(tmp_path / "web.log", {"COMPUTE_WEB_PROCESSES": "2"})
    with ThreadPoolExecutor(1) as starter:
        start = starter.submit(server.start)
        try:
            until(lambda: _ignores_hangups(server))
            os.kill(server.pid, signal.SIGHUP)
            start.result()
        finally:
            server.end()


def _ignores_hangups(web: LiveServer) -> bool:
    with suppress(RuntimeError, FileNotFoundError):
        status = Path(f"/proc/{web.pid}/status").read_text()
        ignored = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
        return bool(int(ignored, 16) & 1 << (signal.SIGHUP - 1))
    return False
