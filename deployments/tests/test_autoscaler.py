"""The autoscaler's looks at real figures, rows and a Prometheus: what it changes, records, and leaves alone."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from deployments import figures, services
from deployments.models import Deployment, PrometheusQuery, StepwiseRollout
from deployments.replicas.reconciliation import reconcile
from deployments.scaling import autoscaler, load, prometheus
from deployments.scaling import services as scaling
from deployments.scaling.memory import Memory
from deployments.tests.making import heal, offer_query, run_replicas, serving_deployment
from proxy.authorization.control_plane import ServiceFigures
from resources import clock
from sessions.notify import proxies_redis

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_reports() -> None:
    proxies_redis().delete("gp.serving:processes")


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that moves the clock of the platform on by so many seconds."""
    begin, passed = clock.now(), [0.0]
    monkeypatch.setattr(clock, "now", lambda: begin + timedelta(seconds=passed[0]))

    def move(seconds: float) -> None:
        passed[0] += seconds

    return move


def following(replicas: int = 1, *, target: float = 10, **overrides: Any) -> Deployment:
    """Return a deployment that serves and follows its outstanding requests."""
    deployment = serving_deployment(replicas)
    fields = {"max_replicas": 8, "down_after_seconds": 60, "cooldown_seconds": 0} | overrides
    scaling.change(deployment, fields, actor=deployment.owner)
    scaling.add_rule(deployment, metric="outstanding", target=target, actor=deployment.owner)
    return deployment


def report(deployment: Deployment, outstanding: int = 0, waiting: int = 0, requests: int = 0) -> None:
    replica = str(deployment.replica_rows.values_list("pk", flat=True)[0])
    figures.store(
        "web",
        [
            ServiceFigures(deployment=deployment.pk, session=replica, outstanding=outstanding, requests=requests),
            ServiceFigures(deployment=deployment.pk, session="", outstanding=waiting),
        ],
    )


def wanted(deployment: Deployment) -> int:
    return Deployment.objects.get(pk=deployment.pk).replicas


def said(deployment: Deployment) -> str:
    event = deployment.events.first()
    assert event is not None
    return event.what


def test_load_scales_up_and_says_why(at: Callable[[float], None]) -> None:
    deployment = following()
    report(deployment, outstanding=30, waiting=11)
    autoscaler.look()
    assert said(deployment) == "Scaled from 1 to 2: 41 requests outstanding, 10 a replica."
    for _ in range(3):
        at(2)
        report(deployment, outstanding=30, waiting=11)
        autoscaler.look()
    assert wanted(deployment) == 5


def test_quiet_scales_down_to_the_least(at: Callable[[float], None]) -> None:
    deployment = following(3)
    for _ in range(45):
        report(deployment)
        autoscaler.look()
        at(2)
    assert wanted(deployment) == 1
    assert said(deployment).startswith("Scaled from 3 to 1: no more were needed for 60 s")


def test_without_reports_nothing_is_scaled_down(at: Callable[[float], None]) -> None:
    deployment = following(3)
    for _ in range(45):
        autoscaler.look()
        at(2)
    assert wanted(deployment) == 3
    memory = Memory.of_json(load.loads([deployment.pk])[0].memory)
    assert "unknown" in memory.note


def test_requests_per_second_count_between_looks(at: Callable[[float], None]) -> None:
    deployment = following(target=100)
    scaling.add_rule(deployment, metric="requests", target=5, actor=deployment.owner)
    for _ in range(4):
        report(deployment, requests=40)
        autoscaler.look()
        at(2)
    assert wanted(deployment) == 4


def test_two_looks_at_once_scale_once(at: Callable[[float], None]) -> None:
    deployment = following()
    report(deployment, outstanding=100)
    rows = autoscaler._followers()  # what another process has seen before
    autoscaler.look()
    [found] = load.loads([deployment.pk])
    scene = autoscaler._scene(rows, {deployment.pk: []})
    autoscaler._scale(rows[0], found, [], scene)
    assert wanted(deployment) == 2
    assert deployment.events.filter(what__startswith="Scaled").count() == 1


def test_a_paused_rule_counts_no_more(at: Callable[[float], None]) -> None:
    deployment = following()
    scaling.change_rule(deployment.scaling_rules.get(), is_paused=True, actor=deployment.owner)
    report(deployment, outstanding=100)
    autoscaler.look()
    assert wanted(deployment) == 1


def test_what_is_stopped_or_not_scaled_is_left_alone(at: Callable[[float], None]) -> None:
    deployment, other = following(), serving_deployment(1)
    services.set_replicas(deployment, 0, actor=deployment.owner)
    for each in (deployment, other):
        report(each, outstanding=100)
    autoscaler.look()
    assert (wanted(deployment), wanted(other)) == (0, 1)


def test_idle_falls_asleep_and_says_so(at: Callable[[float], None]) -> None:
    deployment = following(idle_seconds=60)
    for _ in range(20):
        report(deployment, requests=1)
        autoscaler.look()
        at(2)
    for _ in range(29):
        report(deployment)
        autoscaler.look()
        at(2)
    assert wanted(deployment) == 1
    for _ in range(3):
        report(deployment)
        autoscaler.look()
        at(2)
    assert wanted(deployment) == 0
    assert said(deployment) == "Fell asleep: no request came for 60 s. The next one wakes it."


def test_a_rollout_by_steps_keeps_it_awake(at: Callable[[float], None]) -> None:
    deployment = following(idle_seconds=60)
    rollout = StepwiseRollout.objects.create(deployment=deployment, strategy="canary", steps=[5])
    for _ in range(40):
        report(deployment)
        autoscaler.look()
        at(2)
    assert wanted(deployment) == 1
    rollout.delete()
    report(deployment)
    autoscaler.look()
    assert wanted(deployment) == 0


def test_a_stream_that_goes_on_keeps_it_awake(at: Callable[[float], None]) -> None:
    deployment = following(idle_seconds=60)
    for _ in range(60):
        report(deployment, outstanding=1)
        autoscaler.look()
        at(2)
    assert wanted(deployment) == 1


def test_without_reports_nothing_falls_asleep(at: Callable[[float], None]) -> None:
    deployment = following(idle_seconds=60)
    for _ in range(60):
        autoscaler.look()
        at(2)
    assert wanted(deployment) == 1


def test_what_waits_for_waking_wakes_one_alone(at: Callable[[float], None]) -> None:
    deployment = following(idle_seconds=60, idle_action="end")
    scaling.sleep(deployment, before=1)
    assert scaling.wake(deployment.pk)
    deployment.replica_rows.update(draining_since=clock.now())  # none serves yet
    for _ in range(20):
        report(deployment, waiting=100)
        autoscaler.look()
        at(2)
    assert wanted(deployment) == 1
    host = deployment.replica_rows.get().session.host
    assert host is not None
    deployment.replica_rows.update(draining_since=None)
    heal(*run_replicas(deployment, host))
    reconcile(deployment.pk)
    report(deployment, outstanding=100)
    autoscaler.look()
    assert Deployment.objects.get().waking_since is None
    assert deployment.events.filter(what__startswith="Awake").count() == 1


def test_figures_of_many_take_the_same_number_of_queries(at: Callable[[float], None]) -> None:
    following()
    with CaptureQueriesContext(
        connection,
    ) as one:
        autoscaler.look()
    for _ in range(3):
        following()
    with CaptureQueriesContext(connection) as many:
        autoscaler.look()
    assert len(one) == len(many) == 3


class _Prometheus(BaseHTTPRequestHandler):
    """Answers each query with what the test has set for it."""

    answers: dict[str, bytes] = {}
    asked: list[str] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append(body)
        answer = next((answer for query, answer in self.answers.items() if f"query={query}&" in body), b"")
        self.send_response(302 if answer == b"redirect" else 200)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def vector(*values: str) -> bytes:
    result = [{"metric": {}, "value": [1, value]} for value in values]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


@pytest.fixture
def answers(settings: Settings) -> Iterator[dict[str, bytes]]:
    """Start a Prometheus; return its answers by query."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Prometheus)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings.COMPUTE_PROMETHEUS_URL = f"http://127.0.0.1:{server.server_port}"
    _Prometheus.answers = {}
    _Prometheus.asked = []
    for key in proxies_redis().scan_iter("gp.scaling.query:*"):
        proxies_redis().delete(key)
    yield _Prometheus.answers
    server.shutdown()
    server.server_close()


@pytest.mark.loopback
def test_a_query_scales_by_its_result(answers: dict[str, bytes], at: Callable[[float], None]) -> None:
    deployment = following(target=100)
    query = offer_query("waiting", "jobs.$deployment.$name")
    scaling.add_rule(deployment, metric="query", target=2, query="waiting", actor=deployment.owner)
    answers[f"jobs.{deployment.pk}.model"] = vector("4")
    report(deployment)
    autoscaler.look()
    assert said(deployment) == "Scaled from 1 to 2: its query results in 4, 2 a replica."
    PrometheusQuery.objects.filter(pk=query.pk).update(is_enabled=False)
    asked = len(_Prometheus.asked)
    autoscaler.look()
    assert len(_Prometheus.asked) == asked
    assert "unknown" in Memory.of_json(load.loads([deployment.pk])[0].memory).note


@pytest.mark.loopback
def test_bad_answers_of_prometheus_are_unknown(answers: dict[str, bytes]) -> None:
    answers |= {
        "none": vector(),
        "two": vector("1", "2"),
        "nan": vector("NaN"),
        "negative": vector("-1"),
        "huge": b" " * (64 * 1024) + vector("1"),
        "html": b"<html>",
        "deep": b"[" * 60_000,
        "list": b"[]",
        "failed": b'{"status": "error", "error": "no"}',
        "matrix": b'{"status": "success", "data": {"resultType": "matrix", "result": []}}',
        "redirect": b"redirect",
    }
    assert prometheus.results(list(answers)) == dict.fromkeys(answers)


@pytest.mark.loopback
def test_results_hold_for_all_processes_for_a_while(answers: dict[str, bytes]) -> None:
    answers |= {"jobs": vector("3.5"), "bad": b""}
    for _ in range(3):
        assert prometheus.results(["jobs", "bad", "jobs"]) == {"jobs": 3.5, "bad": None}
    assert len(_Prometheus.asked) == 2


@pytest.mark.loopback
def test_a_prometheus_that_is_not_there_is_unknown(answers: dict[str, bytes], settings: Settings) -> None:
    settings.COMPUTE_PROMETHEUS_URL = "http://127.0.0.1:1"
    assert prometheus.results(["jobs"]) == {"jobs": None}
    settings.COMPUTE_PROMETHEUS_URL = ""
    assert prometheus.results(["other"]) == {"other": None}
