"""Stories of an elastic pool whose provider, hosts and scheduler fail; `elastic_campaign` tells them.

A provider refuses, hangs, forgets, lists what is not there, makes a host twice or keeps what it was to delete; hosts
come late or never, are smaller than promised, or die; the scheduler is killed between any two statements or calls, and
its clock may be an hour off; sessions are parked and resumed; every other pool has a budget. Then all heals. Nothing
may be paid for without need, no session lost or stuck, and nobody told what is not so.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from django.db.models import Q

from resources.amounts.units import GIB, MIB
from resources.elastic import kinds
from resources.elastic.providers import HostRequest, ProvidedHost, ProvidedState, ProviderError
from resources.models import COMING, OVER, ElasticHost, ElasticPool, Host
from scheduler.advice import estimate
from scheduler.core.provisioning import COMES_TEXT
from scheduler.provisioning import reconciler
from sessions.errors import RejectedError
from sessions.launching import services
from sessions.launching.services import LaunchRequest
from sessions.lifecycle import FINAL, HOSTED, Status
from sessions.models import Session
from sessions.parking import services as parking
from sessions.templatetags.session_words import reason_words
from tests.factories import make_group, make_host
from tests.told import problem_of
from tests.virtual.faults import Fault, FaultKind
from tests.virtual.machines import VirtualHost, VirtualRuntime
from tests.virtual.world import World, virtual_world

MINUTE: Final = timedelta(minutes=1)
ROUND: Final = timedelta(seconds=10)
ROUNDS: Final = 90  # of faults
MAX_HEALING: Final = 150  # rounds until all runs again: pauses of the pool are up to an hour
LAST_ROUNDS: Final = 40  # once all sessions have ended
MAX_SESSIONS: Final = 4  # at once, each of which has room on a host
SLACK: Final = 6 * ROUND  # two looks, a pass that ends, and what was decided is carried out
PARKED: Final = 2 * MINUTE  # for which a pool keeps a host for parked sessions
BUDGET: Final = 2  # of hosts that cost 1
SKEWS: Final = (timedelta(0), timedelta(hours=1), timedelta(hours=-1))
PAID_LIMIT: Final = 2 * MINUTE + SLACK  # the longest of the pool's times
TYPE: Final = {"name": "small", "cpus": 4, "memory": "8g", "gpu_count": 1, "cost_per_hour": "1"}
KILLS: Final = (FaultKind.KILLED, FaultKind.KILLED_AFTER, FaultKind.DATABASE_ERROR, FaultKind.ANSWER_LOST)
OF_CREATE: Final = ("refuses", "hangs", "makes it and fails", "makes it twice")
OF_LIST: Final = ("does not list", "lists too little", "lists what is gone", "lists a stranger")
OF_DELETE: Final = ("does not delete", "keeps what it deletes")
OF_HOST: Final = ("never joins", "joins late", "is small", "dies")


@dataclass
class Rented:
    """A machine that is paid for until it is deleted."""

    name: str
    joins_at: datetime | None
    memory: int = 8 * GIB
    host: VirtualHost | None = None
    unneeded_since: datetime | None = None


@dataclass
class Cloud:
    """A provider whose calls fail as the story says."""

    world: World
    random: Random
    faults: Counter[str]
    rented: dict[str, Rented] = field(default_factory=dict)  # by identifier
    gone: list[str] = field(default_factory=list)
    has_faults: bool = True
    has_failed: bool = False  # since the round began
    made: int = 0

    def make(self, configuration: Any, prefix: str) -> "Cloud":
        return self

    def create(self, request: HostRequest) -> str:
        fault = self._fault(OF_CREATE, 0.5)
        if fault in ("refuses", "hangs"):
            raise ProviderError("machines did not end within 120 seconds." if fault == "hangs" else "quota exceeded")
        known = next((each for each, machine in self.rented.items() if machine.name == request.name), None)
        identifier = known or self._rent(request.name)
        if fault == "makes it twice":
            self._rent(request.name)
        if fault == "makes it and fails":
            raise ProviderError("the connection broke")
        return identifier

    def list(self) -> Sequence[ProvidedHost]:
        fault = self._fault(OF_LIST, 0.25)
        if fault == "does not list":
            raise ProviderError("no route to host")
        found = [(each, machine.name, self._state_of(machine)) for each, machine in self.rented.items()]
        if fault == "lists too little":
            found = found[1:]
        if fault == "lists what is gone" and self.gone:
            found.append(("gone", self.random.choice(self.gone), ProvidedState.RUNNING))
        if fault == "lists a stranger":
            found.append(("stranger", f"{ElasticPool.objects.get().prefix}0-stranger", ProvidedState.RUNNING))
        return [ProvidedHost(identifier=each, host_name=name, state=state) for each, name, state in found]

    def delete(self, identifier: str) -> None:
        fault = self._fault(OF_DELETE, 0.3)
        if fault == "does not delete":
            raise ProviderError("try again later")
        if fault != "keeps what it deletes" and identifier in self.rented:
            machine = self.rented.pop(identifier)
            self.gone.append(machine.name)
            if machine.host is not None:
                self.world.lose_power(machine.host)
                self.world.hosts.remove(machine.host)

    def _rent(self, name: str) -> str:
        self.made += 1
        fault = self._fault(OF_HOST[:3], 0.4)
        spans = {"joins late": 4 * MINUTE, "never joins": None}
        span = spans.get(fault, ROUND * self.random.randint(1, 6))
        machine = Rented(name, None if span is None else self.world.clock.now + span)
        machine.memory = GIB // 4 if fault == "is small" else machine.memory
        identifier = f"vm-{self.made}"
        self.rented[identifier] = machine
        return identifier

    @staticmethod
    def _state_of(machine: Rented) -> ProvidedState:
        return ProvidedState.FAILED if machine.host is not None and machine.host.is_gone else ProvidedState.RUNNING

    def _fault(self, of: Sequence[str], chance: float) -> str:
        if not self.has_faults or self.random.random() > chance:
            return ""
        fault = self.random.choice(of)
        self.faults[fault] += 1
        self.has_failed = True
        return fault


class ElasticStory:
    """One story: faults, healing, and what was wrong."""

    def __init__(self, world: World, seed: int, faults: Counter[str]) -> None:
        self.world, self.random, self.faults = world, Random(seed), faults  # no secret
        self.problems: dict[str, list[str]] = {"unneeded": [], "stuck": [], "lost": [], "words": [], "errors": []}
        self.cloud = Cloud(world, self.random, faults)
        self.died: set[str] = set()  # names of hosts
        self.rounds = count()
        self.sessions = 0

    def tell(self) -> None:
        """Tell it, from an empty pool to an empty pool."""
        for table in (ElasticHost, ElasticPool):
            table.objects.all().delete()
        self.world.reset(1)
        Host.objects.all().delete()
        self.world.hosts.clear()
        group = make_group(fgpu_per_gpu=2, host_loss_grace=MINUTE)
        self.world.groups = [group]
        self.pool = ElasticPool(group=group, provider="cloud", host_types=[TYPE], max_hosts=MAX_SESSIONS)
        self.pool.cool_down = self.pool.back_off = MINUTE
        self.pool.cost_per_hour = BUDGET if self.random.random() < 0.5 else None
        self.pool.max_parked_time = PARKED
        for scheduler in self.world.schedulers:
            scheduler.skew = self.random.choice(SKEWS)
        self.pool.give_up_after, self.pool.hosts_per_hour = 2 * MINUTE, 1000
        estimate.state_cache.clear()
        with mock.patch.dict(kinds.KINDS, {"cloud": self.cloud.make}):
            self.pool.full_clean()
            self.pool.save()
            for _ in range(ROUNDS):
                self._happen()
                self._round(ROUND)
            self.cloud.has_faults = False
            for _ in range(MAX_HEALING):
                if not Session.objects.exclude(status__in=(*FINAL, Status.RUNNING, Status.PARKED)).exists():
                    break
                self._round(MINUTE)
            stuck = Session.objects.exclude(status__in=(*FINAL, Status.RUNNING, Status.PARKED))
            self.problems["stuck"] += [f"{each.pk} {each.status}: {each.detail}" for each in stuck]
            for session in Session.objects.exclude(status__in=FINAL):
                services.terminate(session, actor=session.owner)
            for _ in range(LAST_ROUNDS):
                self._round(ROUND)
        self._judge_end()

    def _happen(self) -> None:
        """Have users submit and end sessions, and hosts die."""
        live = list(Session.objects.exclude(status__in=FINAL))
        if len(live) < MAX_SESSIONS and self.random.random() < 0.3:
            owner = self.world.users[1]
            request = LaunchRequest(
                resource_group=self.pool.group,
                image=self.world.image,
                shared_memory=16 * MIB,
                cpu=1,
                memory=GIB,
                fgpu=self.random.choice((0, 500, 1000)),
            )
            services.submit(owner, request)
            self.sessions += 1
        if live and self.random.random() < 0.2:
            session = self.random.choice(live)
            services.terminate(session, actor=session.owner)
        if live and self.random.random() < 0.2:
            session = self.random.choice(live)
            with suppress(RejectedError):
                if session.status == Status.PARKED:
                    parking.resume(session, actor=session.owner)
                else:
                    parking.park(session, actor=session.owner)
        hosts = [machine.host for machine in self.cloud.rented.values() if machine.host and not machine.host.is_gone]
        if hosts and self.random.random() < 0.04:
            host = self.random.choice(hosts)
            self.world.lose_power(host)
            host.is_gone = True
            self.died.add(host.name)
            self.faults["dies"] += 1

    def _round(self, by: timedelta) -> None:
        world, number = self.world, next(self.rounds)
        world.advance(by)
        self.cloud.has_failed = False
        for machine in self.cloud.rented.values():
            self._join(machine)
        fault = None
        if self.cloud.has_faults and self.random.random() < 0.4:
            fault = Fault(self.random.choice(KILLS), self.random.randrange(60))
        before = world.faults.total()
        if not world.act(world.schedulers[number % 2], reconciler.reconcile_pool, self.pool.pk, fault=fault):
            estimate.state_cache.clear()
        self.cloud.has_failed |= world.faults.total() > before
        world.work()
        world.sweep(number)
        world.run_pass(number)
        world.work()
        if not self.cloud.has_failed:
            self._judge_words()
        self._judge_cost()

    def _join(self, machine: Rented) -> None:
        is_known = ElasticHost.objects.filter(name=machine.name, state__in=COMING).exists()
        due = machine.joins_at is not None and machine.joins_at <= self.world.clock.now
        if machine.host is None and due and is_known and not Host.objects.filter(name=machine.name).exists():
            row = make_host(name=machine.name, group=self.pool.group, gpus=1, cpu=4, memory=machine.memory)
            machine.host = VirtualHost(row.name, row=row, runtime=VirtualRuntime(self.world.steps, row.name))
            self.world.hosts.append(machine.host)

    def _judge_cost(self) -> None:
        """Note which machine has been paid for too long while nobody waited, nothing ran on it, and all worked."""
        waits = Session.objects.filter(status__in=(Status.PENDING, Status.SCHEDULED)).exists()
        now = self.world.clock.now
        for machine in self.cloud.rented.values():
            holds = Q(host__name=machine.name, status__in=HOSTED) | Q(parked_on__name=machine.name, ended_at=None)
            is_used = Session.objects.filter(holds).exists()
            if waits or is_used or self.cloud.has_failed:
                machine.unneeded_since = None
            elif machine.unneeded_since is None:
                machine.unneeded_since = now
            elif now - machine.unneeded_since > PAID_LIMIT:
                self.problems["unneeded"].append(f"{machine.name}: since {machine.unneeded_since:%H:%M:%S}")
                machine.unneeded_since = None

    def _judge_words(self) -> None:
        """Compare what those who wait are told with what is so."""
        self.pool.refresh_from_db()
        rows, now = list(ElasticHost.objects.exclude(state__in=OVER)), self.world.clock.now
        coming = [row for row in rows if row.state in COMING]
        expected = [row.expected_at for row in coming if row.expected_at]
        is_paused = self.pool.retry_at is not None and self.pool.retry_at > now
        is_silent = self.pool.silent_since is not None
        is_full = len(rows) >= self.pool.max_hosts
        is_dear = self.pool.cost_per_hour is not None and sum(row.cost_per_hour for row in rows) >= BUDGET
        claims = {
            r"A host comes at about": bool(expected) and min(expected, default=now) >= now - ROUND and not is_silent,
            r"takes longer than usual": bool(coming) and not expected and not is_silent,
            r"has not answered since": is_silent,
            r"(did not come|no session that waits could start)": is_paused and not coming and not is_silent,
            r"A host is made for it": not (coming or is_paused or is_silent or is_full or is_dear),
            r"budget of the resource group is used up": is_dear and not is_full,
            r"has \d of \d\.": is_full,
        }
        for session in Session.objects.filter(status=Status.PENDING):
            told = [(text, is_so) for text, is_so in claims.items() if re.search(text, session.detail)]
            if len(told) > 1 or not all(is_so for _, is_so in told):
                self.problems["words"].append(f"{now:%H:%M:%S} {session.detail}")
            if session.eta_reason == COMES_TEXT and (not expected or session.eta is None or session.eta < now - MINUTE):
                self.problems["words"].append(f"{now:%H:%M:%S} expected at {session.eta}, {len(coming)} come")

    def _judge_end(self) -> None:
        self.problems["unneeded"] += [f"{machine.name} at the end" for machine in self.cloud.rented.values()]
        rows = ElasticHost.objects.exclude(state__in=OVER)
        self.problems["stuck"] += [f"{row.name} is {row.state}: {row.reason}" for row in rows]
        self.problems["stuck"] += [f"{host.name} is left" for host in Host.objects.all()]
        for session in Session.objects.select_related("resource_group"):
            text = reason_words(session)
            if problem := problem_of(session, text):
                self.problems["words"].append(f"{session.pk} is {session.status}, told {text!r}: {problem}")
            if session.status not in FINAL:
                self.problems["stuck"].append(f"{session.pk} is {session.status}: {session.detail}")
            elif session.status == Status.ERROR and not any(name in session.detail for name in self.died):
                self.problems["lost"].append(f"{session.pk}: {session.detail}")
        self.problems["errors"] += self.world.errors


@contextmanager
def elastic_world() -> Iterator[World]:
    """Make a virtual world in which hosts need no credentials."""

    def revoke(name: str) -> None:
        Host.objects.filter(name=name).update(is_cordoned=True, gateway_url="")

    access = SimpleNamespace(add=lambda *arguments: None, revoke=revoke)
    with ExitStack() as stack:
        world = stack.enter_context(virtual_world())
        stack.enter_context(mock.patch.object(reconciler, "hostaccess", access))
        yield world


def run(seeds: Sequence[int]) -> dict[str, Any]:
    """Tell the stories of these seeds; return figures."""
    faults, totals, failing = Counter[str](), Counter[str](), []
    with elastic_world() as world:
        for seed in seeds:
            story = ElasticStory(world, seed, faults)
            story.tell()
            totals.update(seeds=1, sessions=story.sessions, machines=story.cloud.made)
            totals.update({name: len(found) for name, found in story.problems.items()})
            if any(story.problems.values()):
                failing.append({"seed": seed, **{name: found[:5] for name, found in story.problems.items() if found}})
                sys.stderr.write(f"{json.dumps(failing[-1], indent=1)}\n")
        faults.update(world.faults)
    names = ("seeds", "sessions", "machines", "unneeded", "stuck", "lost", "words", "errors")
    return {name: totals[name] for name in names} | {"faults": dict(faults.most_common()), "failing": failing}
