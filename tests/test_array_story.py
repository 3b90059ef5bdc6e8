"""An array with real containers: two tasks at a time, one fails and is retried, a range is cancelled."""

from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import docker
import pytest
from django.conf import settings
from rest_framework.test import APIClient

from arrays.models import Array
from arrays.reconciliation import advance_all
from scheduler.cycle.passes import run_pass
from sessions.lifecycle import LIVE
from sessions.models import Session
from tests.api import client_of
from tests.factories import make_image, make_user
from tests.fgpu_sessions import PYTHON_IMAGE, group_of
from tests.live import LiveServer
from tests.near_host import near_host
from tests.wait import until

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

COMMAND: Final = (
    'echo task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT; echo GP_METRICS "{\\"n\\": $n}"; exit $fails'
)


@pytest.fixture
def web(tmp_path: Path, transactional_db: None) -> Iterator[LiveServer]:
    with near_host(tmp_path / "web.log") as running:
        yield running


def works_until_ended(array: str) -> Array:
    """Do what the scheduler's processes do, until all tasks have ended; never do more than two run."""

    def has_ended() -> bool:
        advance_all()
        run_pass()
        assert Session.objects.filter(status__in=LIVE).count() <= 2
        return Array.objects.filter(pk=array, ended_at__isnull=False).exists()

    until(has_ended)
    return Array.objects.get(pk=array)


def test_an_array_from_submission_to_end(web: LiveServer) -> None:
    owner = make_user()
    group = group_of(settings.COMPUTE_HOST_NAME, 1)
    group.cpu_overcommit = Decimal(4)
    group.save()
    image = make_image(reference=PYTHON_IMAGE)
    api = client_of(owner)
    tasks = [{"n": number, "fails": int(number == 1)} for number in range(6)]
    asked = {"image": image.reference, "command": COMMAND, "cpu": 1, "memory": "256m", "shared_memory": "16m"}
    made = api.post("/api/v1/arrays/", asked | {"tasks": {"list": tasks}, "max_parallel": 2}, format="json").json()
    url = f"/api/v1/arrays/{made['id']}/"
    assert api.post(f"{url}cancel/", {"tasks": "4-5"}, format="json").json()["counts"]["cancelled"] == 2

    array = works_until_ended(made["id"])
    assert (array.succeeded, array.failed, array.cancelled) == (3, 1, 2)
    assert shown(api, url, 1).items() >= {"state": "FAILED", "exit_code": 1, "attempts": 1}.items()
    until(lambda: has_metrics(api, url, 3))  # its output is stored as its container goes
    assert shown(api, url, 3).items() >= {"state": "SUCCEEDED", "metrics": {"n": 3}}.items()
    assert api.get(f"{url}tasks/2/logs/").content.startswith(b"task 2 of 6")

    api.post(f"{url}retry/")
    assert works_until_ended(made["id"]).failed == 1
    assert shown(api, url, 1)["attempts"] == 2
    until(lambda: not left())


def has_metrics(api: APIClient, url: str, index: int) -> bool:
    advance_all()
    return bool(shown(api, url, index)["metrics"])


def shown(api: APIClient, url: str, index: int) -> Any:
    return api.get(f"{url}tasks/{index}/").json()


def left() -> set[str]:
    """Return the containers of sessions that are left."""
    names = {f"gp-{session.pk}-{session.attempt}" for session in Session.objects.all()}
    with closing(docker.from_env()) as engine:
        return names & {str(each.name) for each in engine.containers.list(all=True, ignore_removed=True)}
