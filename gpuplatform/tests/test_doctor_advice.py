"""What doctor says is to be done fits what runs the services on the machine."""

from types import SimpleNamespace

import pytest
from pytest_django import Settings

from operations.doctor import advice, services
from operations.doctor.findings import Finding, Verdict
from operations.services.base import ServiceControlError
from operations.services.compose import ComposeManager
from operations.services.supervisor import SupervisorManager
from operations.services.systemd import SystemdManager
from tests.ports import free_port

pytestmark = pytest.mark.loopback

SYSTEMD, COMPOSE, MAKE_UP = SystemdManager.title, ComposeManager.title, SupervisorManager.title


@pytest.fixture(params=[SYSTEMD, COMPOSE, MAKE_UP, ""])
def manager(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The title of what runs the services; "" for nothing."""

    def local_manager() -> SimpleNamespace:
        if not request.param:
            raise ServiceControlError
        return SimpleNamespace(title=request.param)

    monkeypatch.setattr(advice, "local_manager", local_manager)
    return str(request.param)


def test_services_are_started_by_what_runs_them(manager: str) -> None:
    hint = {
        SYSTEMD: "`systemctl start gpuplatform-scheduler gpuplatform-beat`",
        COMPOSE: "`docker compose up -d scheduler beat`",
        MAKE_UP: "`manage.py services start scheduler`, `manage.py services start beat`",
    }.get(manager, "`make up` starts it")
    verdict = Verdict.FAIL if manager else Verdict.WARN  # before `make up` nothing is missing
    assert advice.away("none has run lately", "scheduler", "beat") == Finding(verdict, "none has run lately", hint)


def test_make_up_is_advised_where_it_or_nothing_runs(manager: str) -> None:
    texts = [advice.migrate(), advice.build_images(), advice.without_gpu(), advice.add_root()]
    assert {"make " in text for text in texts} == {manager in (MAKE_UP, "")}


def test_a_web_server_away_fails_where_it_should_run(manager: str, settings: Settings) -> None:
    settings.COMPUTE_HTTP_ADDRESS = f"127.0.0.1:{free_port()}"
    assert services.web().verdict is (Verdict.FAIL if manager else Verdict.OK)
