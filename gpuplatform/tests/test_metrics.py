"""`/metrics`: what it says, to whom, and that the dashboard and the alerts ask for nothing else."""

import json
import os
import re
import socket
import ssl
import subprocess
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from deployments.tests.making import make_deployment, serving_deployment
from folders.models import HostRoot
from gpuplatform.settings import BASE_DIR
from operations.health.ages import pass_ages, service_ages
from operations.metrics.services import ServicesCollector
from operations.metrics.state import StateCollector, state_registry
from resources import heartbeats
from resources.heartbeats import HeartbeatName
from resources.models import ElasticPool, GpuReading
from scheduler.cycle.passes import run_pass
from sessions.tasks import enforce_deadlines
from tests.factories import make_group, make_host, make_root, make_session, run_session
from tests.wait import SECONDS

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
def test_deployments_and_their_replicas_are_reported() -> None:
    host = make_host()
    serving_deployment(2, host=host)
    make_deployment(host=host, name="second", replicas=3)
    found = samples_of(generate_latest(state_registry()).decode())
    group = host.group.name
    assert found["gpuplatform_deployments"] == {frozenset({group, "HEALTHY"}): 1, frozenset({group, "STARTING"}): 1}
    assert found["gpuplatform_deployment_replicas_wanted"] == {frozenset({group}): 5}
    assert found["gpuplatform_deployment_replicas_ready"] == {frozenset({group}): 2}


@pytest.mark.django_db
def test_sessions_capacity_and_hosts_are_reported(client: Client, settings: Settings) -> None:
    settings.COMPUTE_METRICS_NETWORKS = ["127.0.0.0/8"]
    host = make_host(gpus=2, cpu=16)
    run_session(host=host, fgpu=500, cpu=4, gpu_weight_milli=2500)
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
    assert found["gpuplatform_gpus_leased_weighted"] == {frozenset({group}): 1.25}
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
def test_a_disabled_pool_has_no_failures_to_alert_of() -> None:
    for name, is_enabled in (("on", True), ("off", False)):
        ElasticPool.objects.create(group=make_group(name=name), is_enabled=is_enabled, host_types=[], failures=3)
    failures = samples_of(generate_latest(state_registry()).decode())["gpuplatform_elastic_failures_in_a_row"]
    assert failures == {frozenset({"on"}): 3, frozenset({"off"}): 0}


def known_metrics() -> dict[str, set[str]]:
    """Return {metric: its labels} of all that `/metrics` may say."""
    families = [family for each in (StateCollector(), ServicesCollector()) for family in each.collect()]
    known = {family.name: set(family._labelnames) for family in families}
    requests = {"method", "view", "status"}
    known["gpuplatform_http_request_seconds"] = requests
    known["gpuplatform_http_requests_refused_total"] = set()
    return known


@pytest.mark.django_db
def test_dashboard_and_alerts_name_metrics_that_exist() -> None:
    known = known_metrics()
    names = {*known, *(f"gpuplatform_http_request_seconds_{end}" for end in ("count", "sum", "bucket"))}
    labels = {"le", "job", *chain(*known.values())}
    for file in ("grafana-dashboard.json", "prometheus-alerts.yml"):
        text = (BASE_DIR / "deploy" / file).read_text()
        asked = set(NAMES.findall(text))
        assert asked, file
        assert asked <= names, file
        grouped = re.findall(r"\b(?:by|on) ?\(([a-z_, ]+)\)|([a-z_]+)(?:=~|!~|=|!=)\\?\"", text)
        assert {word for pair in grouped for word in re.findall("[a-z_]+", " ".join(pair))} <= labels, file


@pytest.mark.django_db
def test_the_page_lists_each_metric_with_its_labels() -> None:
    text = (BASE_DIR / "docs/operations.md").read_text()
    listed: dict[str, set[str]] = {}
    for metrics, labels, _ in re.findall(r"^\| (`(?:gpuplatform)?_[^|]*)\|([^|]*)\|(.*)\|$", text, re.MULTILINE):
        for name in re.findall("`([a-z_]+)`", metrics):
            listed[name if name.startswith("gp") else f"gpuplatform{name}"] = set(re.findall("`([a-z]+)`", labels))
    assert listed == known_metrics()


def test_the_dashboard_is_made_of_panels_that_prometheus_can_fill(tmp_path: Path) -> None:
    dashboard = json.loads((BASE_DIR / "deploy/grafana-dashboard.json").read_text())
    panels = dashboard["panels"]
    (source,) = dashboard["templating"]["list"]
    assert {json.dumps(panel["datasource"]) for panel in panels} == {
        json.dumps({"type": source["query"], "uid": f"${{{source['name']}}}"})
    }
    places = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(places) == len(set(places)), "panels lie over each other"
    assert max(x for x, _ in places) < 24, "Grafana's grid has 24 columns"
    assert len({panel["id"] for panel in panels}) == len(panels)
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(asked)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    subprocess.run(["promtool", "check", "rules", tmp_path / "rules.yml"], check=True)


def test_each_alert_has_cases_in_which_it_fires_and_not() -> None:
    folder = BASE_DIR / "deploy"
    subprocess.run(["promtool", "check", "rules", folder / "prometheus-alerts.yml"], check=True)
    subprocess.run(["promtool", "test", "rules", folder / "prometheus-alerts.test.yml"], check=True)
    alerts = re.findall(r"alert: (\w+)", (folder / "prometheus-alerts.yml").read_text())
    cases = (folder / "prometheus-alerts.test.yml").read_text()
    assert len(alerts) > 10
    for alert in alerts:
        assert len(re.findall(rf"alertname: {alert}\b", cases)) == 2, alert


@pytest.fixture
def services() -> dict[str, float]:
    """Heartbeats as if scheduler, beat and SSH had just been noted."""
    cache.clear()
    heartbeats._noted.clear()
    for service in (HeartbeatName.SCHEDULER, HeartbeatName.BEAT, HeartbeatName.SSH):
        heartbeats.note(service)
    return service_ages()


@pytest.mark.django_db
def test_heartbeats_are_infinite_without_the_services_that_must_run() -> None:
    cache.clear()
    group = make_group()
    found = samples_of(generate_latest(state_registry()).decode())
    ages = found["gpuplatform_service_heartbeat_age_seconds"]
    assert ages == {frozenset({"scheduler"}): float("inf"), frozenset({"beat"}): float("inf")}
    assert found["gpuplatform_scheduler_pass_age_seconds"] == {frozenset({group.name}): float("inf")}


@pytest.mark.django_db
def test_a_pass_and_a_sweep_are_noted(services: dict[str, float]) -> None:
    group = make_group()
    run_pass()
    assert pass_ages()[group.name] < SECONDS
    assert set(services) == {"scheduler", "beat", "ssh"}
    cache.clear()
    heartbeats._noted.clear()
    enforce_deadlines()
    assert service_ages()[HeartbeatName.BEAT] < SECONDS


@pytest.mark.django_db
def test_backups_disks_and_roots_are_reported(settings: Settings, tmp_path: Path) -> None:
    settings.COMPUTE_BACKUP_DIR, settings.COMPUTE_BACKUP_HOURS = str(tmp_path), 24
    host = make_host()
    root = make_root(host, name="main")
    HostRoot.objects.update(total_bytes=1000, free_bytes=250)
    nothing: frozenset[str] = frozenset()
    found = samples_of(generate_latest(state_registry()).decode())
    assert found["gpuplatform_backup_age_seconds"] == {nothing: float("inf")}
    assert "gpuplatform_backup_bytes" not in found
    backup = tmp_path / "gpuplatform-2026-01-01T000000.000000Z.tar"
    backup.write_bytes(b"x" * 300)
    os.utime(backup, (time.time() - 7200, time.time() - 7200))
    found = samples_of(generate_latest(state_registry()).decode())
    assert found["gpuplatform_backup_age_seconds"][nothing] == pytest.approx(7200, abs=SECONDS)
    assert found["gpuplatform_backup_bytes"] == {nothing: 300}
    assert found["gpuplatform_storage_root_free_ratio"] == {frozenset({root.name, host.name}): 0.25}
    for name in ("gpuplatform_disk_free_ratio", "gpuplatform_inodes_free_ratio"):
        assert all(0 <= ratio <= 1 for ratio in found[name].values())


@pytest.mark.loopback
@pytest.mark.django_db
def test_gateways_are_asked_whether_they_accept_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as closed:
        ports = [each.getsockname()[1] for each in (listener, closed)]
        closed.close()
        for name, port in zip(("up", "down"), ports, strict=True):
            make_host(name=name, gateway_url=f"http://127.0.0.1:{port}")
        make_host(name="none")
        found = samples_of(generate_latest(state_registry()).decode())
    assert found["gpuplatform_gateway_up"] == {frozenset({"up"}): 1, frozenset({"down"}): 0}


@pytest.mark.loopback
@pytest.mark.django_db
def test_what_hangs_holds_up_no_scrape(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.COMPUTE_BACKUP_DIR = str(tmp_path)
    goes_on, statvfs, getaddrinfo = threading.Event(), os.statvfs, socket.getaddrinfo
    waited_for = []

    def hang(what: str) -> None:
        if not goes_on.wait(SECONDS):
            waited_for.append(what)

    def silent_file_system(folder: Path) -> os.statvfs_result:
        if folder == tmp_path:
            hang("backups")
        return statvfs(folder)

    def silent_name_server(host: str, *arguments: Any, **options: Any) -> Any:
        if host == "gpu.invalid":
            hang(host)
        return getaddrinfo(host, *arguments, **options)

    monkeypatch.setattr(os, "statvfs", silent_file_system)
    monkeypatch.setattr(socket, "getaddrinfo", silent_name_server)
    make_host(name="named", gateway_url="http://gpu.invalid:8010")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        make_host(name="up", gateway_url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        found = samples_of(generate_latest(state_registry()).decode())
    assert not waited_for
    assert found["gpuplatform_gateway_up"] == {frozenset({"up"}): 1, frozenset({"named"}): 0}
    assert set(found["gpuplatform_disk_free_ratio"]) == {frozenset({"var"})}
    goes_on.set()
    found = samples_of(generate_latest(state_registry()).decode())
    assert set(found["gpuplatform_disk_free_ratio"]) == {frozenset({"var"}), frozenset({"backups"})}


@pytest.mark.loopback
@pytest.mark.django_db
def test_the_end_of_the_sites_certificate_is_reported(settings: Settings, tmp_path: Path) -> None:
    pem = self_signed(datetime.now(UTC) + timedelta(days=3))
    (tmp_path / "site.pem").write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "site.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as connection, suppress(OSError):
                context.wrap_socket(connection, server_side=True).close()

        server = threading.Thread(target=serve)
        server.start()
        settings.COMPUTE_PUBLIC_URL = f"https://127.0.0.1:{listener.getsockname()[1]}"
        found = samples_of(generate_latest(state_registry()).decode())
        server.join()
    assert found["gpuplatform_certificate_expiry_seconds"][frozenset()] == pytest.approx(3 * 86400, abs=SECONDS + 1)


def self_signed(ends_at: datetime) -> bytes:
    """Return a key and a certificate of it that ends then, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, datetime.now(UTC), ends_at)
    certificate = builder.sign(key, hashes.SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + certificate.public_bytes(Encoding.PEM)
