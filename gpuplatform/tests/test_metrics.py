"""`/metrics`: what it says, to whom, and that the dashboard and the alerts ask for nothing else."""

import json
import re
from http import HTTPStatus

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from gpuplatform.settings import BASE_DIR
from operations.metrics.state import StateCollector
from resources.models import GpuReading
from tests.factories import make_host, make_session, run_session

NAMES = re.compile(r"gpuplatform_[a-z_]+")
TOKEN = "a token of forty characters, for Prometheus"


def samples_of(text: str) -> dict[str, dict[frozenset[str], float]]:
    """Return {metric: {values of its labels: value}}."""
    found: dict[str, dict[frozenset[str], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.values())] = sample.value
    return found


@pytest.mark.django_db
def test_sessions_capacity_and_hosts_are_reported(client: Client, settings: Settings) -> None:
    settings.COMPUTE_METRICS_NETWORKS = ["127.0.0.0/8"]
    host = make_host(gpus=2, cpu=16)
    run_session(host=host, fgpu=500, cpu=4)
    make_session(resource_group=host.group, reason="NO_CAPACITY")
    gpu = host.gpus.first()
    assert gpu is not None
    GpuReading.objects.create(gpu=gpu, utilisation=25)  # its driver tells no temperature
    answer = client.get("/metrics")
    assert (answer.status_code, "no-store" in answer["Cache-Control"]) == (HTTPStatus.OK, True)
    found, group = samples_of(answer.content.decode()), host.group.name
    assert found["gpuplatform_sessions"] == {frozenset({group, "RUNNING"}): 1, frozenset({group, "PENDING"}): 1}
    assert found["gpuplatform_sessions_pending"] == {frozenset({group, "NO_CAPACITY"}): 1}
    assert found["gpuplatform_sessions_pending_oldest_seconds"][frozenset({group})] >= 0
    assert found["gpuplatform_gpus"] == {frozenset({group}): 2}
    assert found["gpuplatform_gpus_leased"] == {frozenset({group}): 0.5}
    assert found["gpuplatform_cpu_cores_leased"] == {frozenset({group}): 4}
    assert found["gpuplatform_host_info"] == {frozenset({host.name, group, "READY", "false"}): 1}
    assert found["gpuplatform_gpu_utilization_ratio"] == {frozenset({host.name, gpu.uuid}): 0.25}
    assert "gpuplatform_gpu_temperature_celsius" not in found


@pytest.mark.django_db
def test_only_a_set_token_or_network_is_let_in(client: Client, settings: Settings) -> None:
    for empty in ("", "Bearer ", "Bearer"):
        assert client.get("/metrics", HTTP_AUTHORIZATION=empty).status_code == HTTPStatus.NOT_FOUND
    settings.COMPUTE_METRICS_TOKEN = TOKEN
    settings.COMPUTE_METRICS_NETWORKS = ["10.0.0.0/8"]
    assert client.get("/metrics", HTTP_AUTHORIZATION=f"Bearer {TOKEN}").status_code == HTTPStatus.OK
    for wrong in ("", "Bearer ", f"Token {TOKEN}", f"Bearer {TOKEN}x", "Bearer ü"):
        assert client.get("/metrics", HTTP_AUTHORIZATION=wrong).status_code == HTTPStatus.NOT_FOUND
    assert client.get("/metrics", REMOTE_ADDR="10.1.2.3").status_code == HTTPStatus.OK
    assert client.get("/metrics", REMOTE_ADDR="11.1.2.3").status_code == HTTPStatus.NOT_FOUND
    assert client.get("/metrics", REMOTE_ADDR="").status_code == HTTPStatus.NOT_FOUND


@pytest.mark.django_db
def test_a_scrape_takes_the_same_queries_for_any_number() -> None:
    counts = []
    for _ in range(2):
        for _ in range(3):
            run_session(host=make_host(gpus=1), fgpu=500)
        with CaptureQueriesContext(connection) as queries:
            list(StateCollector().collect())
        counts.append(len(queries))
    assert counts[0] == counts[1]


@pytest.mark.django_db
def test_dashboard_and_alerts_name_metrics_that_exist() -> None:
    known = {family.name for family in StateCollector().collect()}
    known |= {f"gpuplatform_http_request_seconds_{end}" for end in ("count", "sum", "bucket")}
    known.add("gpuplatform_http_requests_refused_total")
    for file in ("grafana-dashboard.json", "prometheus-alerts.yml"):
        text = (BASE_DIR / "deploy" / file).read_text()
        asked = set(NAMES.findall(text))
        assert asked, file
        assert asked <= known, file
    json.loads((BASE_DIR / "deploy/grafana-dashboard.json").read_text())
