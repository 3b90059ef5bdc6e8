"""Reports of the hardware protocol: what is stored of them, what is refused, and how it is told."""

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse
from django.utils.translation import override

from accounts.models import AuditEntry
from fgpu.hardware.protocol import STEPS as PROTOCOL_STEPS
from resources.hosts import measurements
from resources.hosts.measurements import MeasurementError
from resources.models import GpuMeasurement, Host
from tests.api import client_of
from tests.factories import make_gpu, make_host, make_user
from tests.gpu_reports import REPORT, UUID, changed

WORDS = (
    "Measured on 2026-11-27 with driver 580.159.04: memory exact, shares within 1.2 points, 99.8 % of idle time used,"
    " idle time given back within 6.6 ms, launch +4 ns, PyTorch trains at 25 % with 22.3 % of the speed."
    " Left out: JAX."
)


@pytest.fixture
def host(db: None) -> Host:
    host = make_host(name="gpu7", gpu_driver="580.159.04")
    make_gpu(host=host, uuid=UUID, is_simulated=False)
    return host


def store(report: dict[str, Any] = REPORT, host_name: str = "gpu7") -> GpuMeasurement:
    measurements.store(host_name, report, by="root@gpu7.example.org")
    return GpuMeasurement.objects.select_related("gpu__host").get()


def write(folder: Path, text: str) -> Path:
    path = folder / "report.json"
    path.write_text(text)
    return path


def test_a_report_is_stored_and_told_in_words(host: Host, tmp_path: Path) -> None:
    found = measurements.load(write(tmp_path, json.dumps(REPORT)))
    stored = store(dict(found))
    assert measurements.summary(stored) == WORDS
    with override("ko"):
        assert "580.159.04" in measurements.summary(stored)
        assert "Measured" not in measurements.summary(stored)
    assert (stored.measured_at, stored.hook) == (datetime(2026, 11, 27, 12, tzinfo=UTC), "0f" * 32)


def test_every_step_has_a_name() -> None:
    assert measurements.STEPS.keys() == PROTOCOL_STEPS.keys()


def test_what_failed_is_said_and_changes_no_tier(host: Host) -> None:
    tier = host.gpus.get().tier
    steps = [{"step": step, "state": state, "why": "", "seconds": 1} for step, state in FAILING.items()]
    stored = store(changed(steps=steps, figures={**REPORT["figures"], "memory_exact": False}))
    words = measurements.summary(stored)
    assert "memory NOT exact" in words
    assert "Failed: memory, sessions at the same time." in words
    assert host.gpus.get().tier == tier


FAILING = {"memory": "failed", "contention": "timed out", "views": "passed"}


def test_another_driver_since_is_warned_of(host: Host) -> None:
    assert not store().is_outdated
    Host.objects.update(gpu_driver="590.10")
    assert "Warning: the driver is 590.10 since then; measure again." in measurements.summary(store())
    Host.objects.update(gpu_driver="")  # not known, as of a host that has not registered since
    assert not store().is_outdated


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (changed(complete=False), "not complete"),
        (changed(simulated=True), "simulated"),
        (changed(gpu={**REPORT["gpu"], "uuid": UUID[:-1] + "2"}), "does not have"),
        (changed(date=(datetime.now(UTC) + timedelta(days=1)).isoformat()), "of the future"),
        (changed(date="2026-11-27T12:00:00"), "date"),
        (changed(date="yesterday"), "date"),
    ],
)
def test_reports_that_do_not_fit_are_refused(host: Host, report: dict[str, Any], why: str) -> None:
    with pytest.raises(MeasurementError, match=why):
        store(report)
    assert not GpuMeasurement.objects.exists()


def test_another_hosts_gpu_is_refused(host: Host) -> None:
    make_host(name="gpu8")
    with pytest.raises(MeasurementError, match="gpu8 does not have"):
        store(host_name="gpu8")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting"),
        ("[" * 100_000, "no report"),
        (" " * (1 << 20) + "{}", "larger than 1 MiB"),
        (json.dumps(changed(driver=7)), "driver: 7 is not of type"),
        (json.dumps(changed(schema=2)), "schema: 1 was expected"),
        (json.dumps(changed(more=1)), "Additional properties"),
        (json.dumps(changed(figures={**REPORT["figures"], "handback_ms": math.nan})), "NaN is no number"),
        (json.dumps(changed(figures={**REPORT["figures"], "handback_ms": 1e300})), "figures.handback_ms"),
    ],
)
def test_files_that_are_no_report_are_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(MeasurementError, match=why):
        measurements.load(write(tmp_path, text))
    with pytest.raises(MeasurementError):
        measurements.load(tmp_path / "missing.json")


@pytest.mark.parametrize("figure", [math.nan, math.inf, -1e7])
def test_the_database_bounds_every_figure(host: Host, figure: float) -> None:
    store()
    with pytest.raises(IntegrityError), transaction.atomic():
        GpuMeasurement.objects.update(handback_ms=figure)


def test_a_report_is_audited_once(host: Host) -> None:
    store()
    store()  # the same again
    entry = AuditEntry.objects.get(action="measured")
    assert (entry.object_type, entry.object_id, entry.object_text) == ("resources.Host", str(host.pk), "gpu7")
    assert (entry.actor_name, entry.source, entry.actor) == ("root@gpu7", "command", None)
    assert (entry.changes["gpu"], entry.changes["driver"]) == ([None, UUID], [None, "580.159.04"])
    store(changed(date="2026-11-28T12:00:00+00:00", driver="590.10"))
    assert AuditEntry.objects.filter(action="measured").first().changes == {  # type: ignore[union-attr]
        "gpu": [None, UUID],
        "driver": ["580.159.04", "590.10"],
        "measured_at": ["2026-11-27T12:00:00+00:00", "2026-11-28T12:00:00+00:00"],
    }
    with pytest.raises(MeasurementError, match="A later one"):
        store()


def test_superadmins_see_it_by_the_api(host: Host) -> None:
    store()
    client = client_of(make_user(is_superuser=True))
    [shown] = client.get("/api/v1/admin/hosts/").json()["results"]
    assert shown["gpu_driver"] == "580.159.04"
    measured = shown["gpus"][0]["measurement"]
    assert (measured["is_outdated"], measured["handback_ms"]) == (False, 6.61)
    assert shown["measured"] == [f"GPU 0: {WORDS}"]
    GpuMeasurement.objects.all().delete()
    assert client.get(f"/api/v1/admin/hosts/{host.pk}/").json()["gpus"][0]["measurement"] is None


def test_others_do_not_see_it(host: Host) -> None:
    store()
    client = client_of(make_user())
    assert client.get("/api/v1/admin/hosts/").status_code == 403
    assert "measurement" not in client.get("/api/v1/hosts/").content.decode()


def test_the_administration_shows_it(host: Host, client: Client) -> None:
    page = reverse("admin:resources_host_change", args=[host.pk])
    client.force_login(make_user(is_superuser=True, is_staff=True))
    assert "doctor --gpu" in client.get(page).content.decode()
    store(changed(driver="<b>580"))
    shown = client.get(page).content.decode()
    assert "with driver &lt;b&gt;580: memory exact" in shown
    assert "Warning: the driver is 580.159.04 since then" in shown
