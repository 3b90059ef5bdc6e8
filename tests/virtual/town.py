"""People at work on a platform whose web application, tasks and hosts act in one thread, by a clock that is set."""

import json
import logging
import random
import shutil
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from typing import Any, Final
from unittest import mock

from django.conf import settings
from django.db import connection
from django.test import Client, override_settings
from django.urls import reverse

from accounts.models import ApiToken, User
from arrays import services as arrays
from arrays.models import Array
from deployments import figures
from deployments import services as deployments
from deployments.access import tokens as deployment_tokens
from deployments.models import Deployment, Replica
from deployments.scaling import services as scaling
from deployments.tests.making import deployment_request, heal, revision_request
from folders.models import Folder, OnConflict, Upload
from folders.storage import paths as storage
from folders.uploads import services as uploads
from gpuplatform.celery import app
from hostworker.agent import due_work, starts
from hostworker.agent.acts import ACTS
from hostworker.gpus import usage_recorder
from hostworker.simulated import fleet as simulated_fleet
from hostworker.simulated import runtime as simulated_runtime
from hostworker.simulated.fleet import SimulatedHost
from hostworker.simulated.programs import Program
from hostworker.simulated.runtime import SimulatedContainers
from hostworker.storage import disk_watch
from hostworker.terminals import session_keys
from messaging.background import BackgroundThread
from operations import backups, retention
from proxy.authorization.control_plane import ServiceFigures
from resources import clock as shared_clock
from resources import kick
from resources.amounts.units import GIB
from sessions import notify
from sessions.launching import services
from sessions.lifecycle import FINAL, Status
from sessions.models import IdleRule, Session
from sessions.notify import proxies_redis
from tests.factories import make_app, make_folder, make_group, make_host, make_image, make_policy, make_root, make_user
from tests.virtual.clock import VirtualClock, virtual_time
from tests.virtual.world import no_op
from webhooks import services as webhooks
from webhooks.event_types import DEFAULT_TYPES

PASSWORD: Final = "long enough to sign in"
MORNING, EVENING = 8, 20  # hours between which people work
LOST_HOUR: Final = 14  # of each day, in which a host is silent
KEEPS_BACKUPS: Final = 7
API: Final = "/api/v1"
# Functions that have a search path of their own would go by the real clock; the database is made anew for each week.
_FUNCTIONS_BY_CLOCK: Final = """
    DO $$ DECLARE found regprocedure; BEGIN
        FOR found IN SELECT oid FROM pg_proc
            WHERE pronamespace = 'public'::regnamespace AND proconfig::text LIKE '%search_path%'
        LOOP
            EXECUTE format('ALTER FUNCTION %s SET search_path = virtual, public, pg_temp, pg_catalog', found);
        END LOOP;
    END $$
"""
HOST_TASKS: Final = "hostworker.tasks."
REQUESTS: Final = 50  # of a replica in a step
HOUR: Final = timedelta(hours=1)
GPUS: Final = 16  # of a host
WEIGHTS: Final = {
    **{"launch_by_api": 20, "launch_by_wizard": 10, "launch_cluster": 3, "submit_array": 3, "terminate": 15},
    **{"open_app": 10, "share_app": 4, "look": 25, "upload": 8, "begin_upload": 2, "fail_to_sign_in": 3},
}


class Person:
    """Somebody with a browser, a program with a token, and a folder."""

    def __init__(self, user: User, folder: Folder, number: int) -> None:
        self.user, self.folder = user, folder
        self._browser = Client(REMOTE_ADDR=f"10.1.{number // 250}.{number % 250 + 1}", headers={"host": "localhost"})
        token = ApiToken.objects.issue(user, name="program", lifetime=timedelta(days=365))[1]
        self._headers = {"authorization": f"Token {token}"}

    def sign_in(self, password: str = PASSWORD) -> int:
        """Sign in with a browser that has no cookies; return the status."""
        self._browser.cookies.clear()
        return self.post(reverse("account_login"), {"login": self.user.email, "password": password})

    def open(self, path: str) -> int:
        """Open a page; return the status."""
        return int(self._browser.get(path).status_code)

    def post(self, path: str, form: dict[str, Any]) -> int:
        """Send a form; return the status."""
        return int(self._browser.post(path, form).status_code)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request of the API; return the response."""
        data = "" if body is None else json.dumps(body)
        sent = self._headers | {name.replace("_", "-"): value for name, value in headers.items()}
        return self._browser.generic(method, path, data, "application/json", headers=sent)


class Town:
    """The platform and its people; `done` counts what they did, `errors` what nobody may see."""

    def __init__(self, clock: VirtualClock, users: int, hosts: int, acts: float, webhook: str) -> None:
        self._clock, self._chance, self._acts = clock, random.Random(1), acts
        self.done: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self._aged_at = clock.now
        self._due: dict[str, float] = {}
        self.serving: set[str] = set()  # sessions of replicas
        self._messages: list[tuple[str, str, tuple[Any, ...]]] = []
        self._group = make_group(name="lab", fgpu_per_gpu=4)
        rows = [make_host(gpus=GPUS, cpu=256, memory=2048 * GIB, group=self._group) for _ in range(hosts)]
        self._image = make_image(reference="lab/python:1", is_default=True)
        make_app(self._image)
        root = make_root(*rows, path=str(settings.COMPUTE_VAR_DIR / "folders"))
        storage.prepare_root(root)
        policy = make_policy(max_lifetime=timedelta(hours=12), max_sessions=None)
        self._people = [self._person(number, policy, root) for number in range(users)]
        IdleRule.objects.create(name="idle", is_enabled=True, idle_timeout=2 * HOUR, warning=HOUR / 2)
        for person in self._people[::10]:
            webhooks.create(person.user, url=webhook, types=DEFAULT_TYPES)
        for number, person in enumerate(self._people[: max(1, users // 20)]):
            self._deploy(f"model-{number}", person.user)
        self._hosts: list[SimulatedHost] = list(simulated_fleet.simulate(rows, SimulatedContainers())._hosts.values())

    def _person(self, number: int, policy: Any, root: Any) -> Person:
        user = make_user(policy=policy, email=f"user{number}@example.org")
        user.set_password(PASSWORD)
        user.save()
        folder = make_folder(user, root=root)
        storage.ensure_directory(folder)
        return Person(user, folder, number)

    def _deploy(self, name: str, owner: User) -> None:
        revision = revision_request(image=self._image)
        made = deployments.create(owner, deployment_request(name=name, revision=revision, resource_group=self._group))
        scaling.change(made, {"max_replicas": 2, "idle_seconds": 3600, "idle_action": "end"}, actor=owner)
        deployment_tokens.create_token(made, name="program", actor=owner)

    # Time

    def step(self, by: timedelta) -> None:
        """Let time pass; people, hosts and periodic tasks do their work."""
        self._clock.set(self._clock.now + by)
        hour = self._clock.now.hour
        if MORNING <= hour < EVENING:
            steps = (EVENING - MORNING) * HOUR / by
            for person in self._people:
                if self._chance.random() < self._acts / steps:
                    self._try(partial(self._work, person))
        self._serve(is_day=MORNING <= hour < EVENING)
        here = self._hosts[hour == LOST_HOUR and len(self._hosts) > 1 :]
        self._take_messages(here)
        self._run_loops(here)
        self._tasks()
        self._take_messages(here)
        self.aged()

    def back_up(self) -> None:
        """Make the backup of a day."""
        backups.make(settings.COMPUTE_VAR_DIR / "backups", keep=KEEPS_BACKUPS)
        self.done["backups"] += 1

    def aged(self) -> None:
        """Have the keys of Redis that have an end be older by the time that has passed."""
        server = proxies_redis()
        passed_ms = int((self._clock.now - self._aged_at).total_seconds() * 1000)
        self._aged_at = self._clock.now
        for key in server.scan_iter(count=1000):
            if (left := server.pttl(key)) > 0:
                server.pexpire(key, max(1, left - passed_ms))

    def end_all(self, by: timedelta) -> None:
        """End all that people have begun, and wait until it has ended."""
        for deployment in Deployment.objects.filter(ended_at=None):
            deployments.end(deployment, actor=deployment.owner)
        for array in Array.objects.filter(ended_at=None):
            arrays.cancel(array, actor=array.owner)
        for session in Session.objects.exclude(status__in=FINAL):
            self._try(partial(services.terminate, session, actor=session.owner))
        self._acts = 0
        for _ in range(6):
            self.step(by)

    def after(self, span: timedelta, tables: Sequence[str]) -> dict[str, int]:
        """Let this time pass without work, as the periodic removal does; return the rows that are left, by table."""
        self._clock.set(self._clock.now + span)
        retention.remove_old(shared_clock.now())
        left = {}
        with connection.cursor() as cursor:
            for table in tables:
                cursor.execute(f'SELECT count(*) FROM public."{table}"')
                if rows := cursor.fetchone()[0]:
                    left[table] = rows
        return left

    # What the platform does

    def _tasks(self) -> None:
        for entry in app.conf.beat_schedule.values():
            if entry["task"] == "gpuplatform.tasks.back_up_if_due":  # once a day
                continue
            now = self._clock.monotonic()
            if self._due.get(entry["task"], 0.0) <= now:
                self._due[entry["task"]] = now + entry["schedule"]
                self._try(app.tasks[entry["task"]].run)

    def _take_messages(self, hosts: Sequence[SimulatedHost]) -> None:
        messages, self._messages = self._messages, []
        by_queue = {notify.host_queue(host.host.name): host for host in hosts}
        for queue, name, arguments in messages:
            if host := by_queue.get(queue):
                with override_settings(COMPUTE_HOST_NAME=host.host.name):
                    self._try(partial(ACTS[name], host.runtime, *arguments))

    def _run_loops(self, hosts: Sequence[SimulatedHost]) -> None:
        for host in hosts:
            with override_settings(COMPUTE_HOST_NAME=host.host.name):
                for loop, _seconds in host.loops:
                    self._try(loop)
        self.serving = {*Replica.objects.values_list("session_id", flat=True)}
        replicas = Replica.objects.filter(session__status=Status.RUNNING).exclude(health="healthy")
        heal(*replicas, at=shared_clock.now())

    def send_task(self, name: str, args: tuple[Any, ...] = (), queue: str = "", **_: Any) -> None:
        """Take what is sent to Celery: messages to hosts; passes come by themselves."""
        if name.startswith(HOST_TASKS):
            self._messages.append((queue, name.removeprefix(HOST_TASKS), tuple(args)))

    def _serve(self, *, is_day: bool) -> None:
        """Answer a minute's requests of each deployment, and wake those that sleep; at night there are none."""
        for deployment in Deployment.objects.filter(ended_at=None) if is_day else ():
            if deployment.asleep_since is not None:
                self._try(partial(scaling.wake, deployment.pk))
            running = deployment.replica_rows.filter(session__status=Status.RUNNING)
            for session_id in running.values_list("session_id", flat=True):
                served = ServiceFigures(
                    deployment=deployment.pk, session=session_id, revision=1, requests=REQUESTS, latencies={3: REQUESTS}
                )
                figures.store("proxy", [served])
                self.done["requests"] += REQUESTS

    # What people do

    def _work(self, person: Person) -> None:
        [name] = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if name != "fail_to_sign_in" and person.open("/sessions/") == 302:
            assert person.sign_in() == 302
            self.done["sign_in"] += 1
        status = getattr(self, f"_{name}")(person)
        if status:
            self.done[name] += 1
            if status >= 500:
                self.errors[f"{name}: {status}"] += 1
            elif status >= 400:
                self.done[f"{name}: {status}"] += 1

    def _session_of(self, person: Person) -> Session | None:
        return Session.objects.filter(owner=person.user, status=Status.RUNNING, cluster=None).order_by("?").first()

    def _launch_by_api(self, person: Person, **fields: Any) -> int:
        key = {"idempotency_key": f"{self._clock.now.isoformat()}"}
        body = {"image": self._image.reference, "resource_group": "lab", "cpu": 1, "memory": "2g", "fgpu": "0.25"}
        return int(person.ask("POST", f"{API}/sessions/", body | fields, **key).status_code)

    def _launch_by_wizard(self, person: Person) -> int:
        person.open("/sessions/launch/review/")
        typed = {"image": self._image.pk, "resource_group": self._group.pk, "preset": "", "name": "", "count": "1"}
        typed |= {"cpu": "2", "memory": "4g", "shared_memory": "64m", "fgpu": "0.25", "source": ""}
        return person.post("/sessions/launch/", typed | {"form_key": f"tab-{self._clock.now:%d%H%M}"})

    def _launch_cluster(self, person: Person) -> int:
        return self._launch_by_api(person, cluster={"size": 2}, command="train", time_limit="1h")

    def _submit_array(self, person: Person) -> int:
        body = {"name": "sweep", "image": self._image.reference, "command": "train", "cpu": 1, "memory": "1g"}
        return int(person.ask("POST", f"{API}/arrays/", body | {"tasks": "0-4"}).status_code)

    def _terminate(self, person: Person) -> int:
        session = self._session_of(person)
        return int(person.ask("POST", f"{API}/sessions/{session.pk}/terminate/").status_code) if session else 0

    def _open_app(self, person: Person) -> int:
        session = self._session_of(person)
        path = f"{API}/sessions/{session.pk}/apps/jupyter/" if session else ""
        return int(person.ask("POST", path, {}).status_code) if path else 0

    def _share_app(self, person: Person) -> int:
        session = self._session_of(person)
        path = f"{API}/sessions/{session.pk}/apps/jupyter/share/" if session else ""
        return int(person.ask("POST", path, {"hours": 1}).status_code) if path else 0

    def _look(self, person: Person) -> int:
        session = self._session_of(person)
        return person.open(f"/sessions/{session.pk}/" if session else "/folders/")

    def _upload(self, person: Person) -> int:
        """Upload an empty file."""
        upload = self._begin(person, 0)
        with closing(uploads.resume(upload)) as partial:
            uploads.finish(upload, partial)
        return 201

    def _begin_upload(self, person: Person) -> int:
        """Begin an upload that nobody continues."""
        self._begin(person, 1000)
        return 201

    def _begin(self, person: Person, length_bytes: int) -> Upload:
        self.done["files"] += 1
        path = f"data-{self.done['files']}"
        return uploads.begin(person.user, person.folder, path, length_bytes, OnConflict.REFUSE)

    def _fail_to_sign_in(self, person: Person) -> int:
        person.sign_in("wrong")
        return person.sign_in()

    def _try(self, act: Callable[[], object]) -> None:
        """Do it, and count an exception that nobody may see."""
        try:
            act()
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.errors[f"{type(error).__name__} at {place.name}:{place.lineno}: {str(error)[:200]}"] += 1


class _Receiver(BaseHTTPRequestHandler):
    """Takes messages of webhooks."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def _run(_thread: BackgroundThread, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
    """Run it at once: only this thread's connection has the clock."""
    done: Future[Any] = Future()
    done.set_result(function(*arguments))
    return done


@contextmanager
def town(users: int, hosts: int, acts: float) -> Iterator[Town]:
    """Make the town on this thread's connection; nothing else may use the database meanwhile."""
    app.loader.import_default_modules()
    for name in ("folders", "backups"):  # of an earlier run
        shutil.rmtree(settings.COMPUTE_VAR_DIR / name, ignore_errors=True)
    proxies_redis().flushall()
    clock = VirtualClock()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    logging.disable(logging.CRITICAL)
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.NOTSET)
        stack.callback(server.shutdown)
        stack.enter_context(override_settings(EMAIL_BACKEND="django.core.mail.backends.dummy.EmailBackend"))
        stack.enter_context(virtual_time(clock))
        with connection.cursor() as cursor:
            cursor.execute(_FUNCTIONS_BY_CLOCK)
        stack.enter_context(mock.patch.object(BackgroundThread, "run", _run))
        stack.enter_context(mock.patch.object(starts, "close_old_connections", no_op))
        stack.enter_context(mock.patch.object(starts, "connections", mock.Mock()))
        for module in (due_work, usage_recorder, simulated_runtime, session_keys, disk_watch):
            stack.enter_context(mock.patch.object(module, "time", clock))
        place = Town(clock, users, hosts, acts, f"http://127.0.0.1:{server.server_port}/")
        seconds = Program.batch_seconds
        stack.enter_context(
            mock.patch.object(Program, "batch_seconds", lambda of: inf if of.session in place.serving else seconds(of))
        )
        for module in (notify, kick):
            stack.enter_context(mock.patch.object(module, "current_app", place))
        yield place
