"""The machine of a container engine is lent by one host worker, unless an administrator has divided it."""

import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from hostworker.agent import engine_lock
from hostworker.management.commands import hostworker
from resources.hosts import claims
from tests.podman import answering_podman
from tests.wait import SECONDS

HOLDER = (
    "import sys; from hostworker.agent import engine_lock; lock = engine_lock.take(sys.argv[1]); print('held'); input()"
)


def test_an_engine_is_free_again_when_its_worker_is_killed() -> None:
    engine = uuid4().hex
    command = [sys.executable, "-c", HOLDER, engine]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        with pytest.raises(engine_lock.EngineTakenError, match="COMPUTE_SHARED_ENGINE"):
            engine_lock.take(engine)
        engine_lock.take(uuid4().hex).close()
        other.send_signal(signal.SIGKILL)
        other.wait(SECONDS)
        engine_lock.take(engine).close()


@pytest.mark.django_db
def test_a_second_host_worker_starts_only_where_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise claims.HostNameTakenError("went on")

    engine = uuid4().hex
    monkeypatch.setattr(hostworker, "engine_id", lambda: engine)
    monkeypatch.setattr(hostworker, "claim", refuse)
    lock = engine_lock.take(engine)
    with override_settings(COMPUTE_SHARED_ENGINE=False), pytest.raises(CommandError, match="twice"):
        call_command("hostworker")
    with override_settings(COMPUTE_SHARED_ENGINE=True), pytest.raises(CommandError, match="went on"):
        call_command("hostworker")
    lock.close()
    with override_settings(COMPUTE_SHARED_ENGINE=False), pytest.raises(CommandError, match="went on"):
        call_command("hostworker")


@pytest.mark.django_db
def test_a_host_worker_does_not_start_on_podman(tmp_path: Path) -> None:
    with (
        answering_podman(tmp_path) as url,
        override_settings(COMPUTE_DOCKER_URL=url),
        pytest.raises(CommandError, match="will not do: it is Podman"),
    ):
        call_command("hostworker")
