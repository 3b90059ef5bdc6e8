"""What happens in a cluster: the random campaign, and short stories for tests."""

import argparse
import random
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.core.management import call_command
from django.db import connections

from bench.sizes import size
from hostaccess import services as access
from resources.models import Host as HostRow
from resources.models import HostStatus, ImageSource, ResourceGroup
from sessions.lifecycle import FINAL, Status
from sessions.models import Session, SessionQuerySet
from tests.cluster import deployment_story, gang_faults, workloads
from tests.cluster import phases as phases  # registers its faults, as gang_faults does
from tests.cluster import surroundings as surroundings  # the same
from tests.cluster.checks import Inspector, Verdict, asked
from tests.cluster.faults import BEYOND_GRACE, GRACE_S, KINDS, Kind, World
from tests.cluster.gangs import HalfGangs
from tests.cluster.killed_host import EXPECTED, kill_host
from tests.cluster.people import BATCH, People
from tests.cluster.pulls import SlowRegistry
from tests.cluster.site import Host, Site
from tests.factories import make_group, make_image
from tests.shell_image import SHELL_IMAGE
from tests.tiny_image import TINY_IMAGE
from tests.wait import until

GROUP: Final = "faults"
MIN_LIVE: Final = 8  # sessions that people keep going
MAX_LIVE: Final = 14
GANGS: Final = 0.3  # of what people submit
MIN_AT_ONCE: Final = size(5, 1)  # faults of a round
MAX_AT_ONCE: Final = size(12, 1)
TIME_LIMIT_S: Final = 300
MAX_WAIT_S: Final = 900.0  # of a fault for its turn
START_S: Final = 240.0
MAX_TEXTS: Final = 40  # of what went wrong, in the output


def tell(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """Start the cluster, tell the story that is named, and return its figures."""
    world = _start(site)
    campaign = Campaign(world, options.seed)
    if options.story == "campaign":
        kinds = [KINDS[name] for name in options.kinds.split(",")] if options.kinds else list(KINDS.values())
        kinds = [kind for kind in kinds if kind.is_of_gangs or not options.gangs]
        campaign.run(kinds, options.faults, options.minutes * 60)
        campaign.end()
    elif options.story == "deployment":
        served = deployment_story.serve_through_faults(world, ResourceGroup.objects.get(name=GROUP))
        campaign.found.violations += [*served["wrong"], *served["cut"]]
        campaign.settle()
        return campaign.figures() | {"served": served}
    else:
        return _short_story(campaign)
    return campaign.figures()


def _short_story(campaign: "Campaign") -> dict[str, Any]:
    """Have each kind happen once while a host is killed under its sessions; return the figures, and those sessions'."""
    killed = campaign.world.hosts.pop(0)
    chance = random.Random(f"killed host {campaign.seed}")  # not the campaign's own: idempotency keys are drawn
    with ThreadPoolExecutor(1) as pool:
        sessions = pool.submit(kill_host, campaign.world, killed, chance)
        on_hosts = [kind for name, kind in KINDS.items() if kind.target == "host" and name != BEYOND_GRACE]
        campaign.round(on_hosts, until_done=sessions)
    campaign.world.hosts.append(killed)
    campaign.round([kind for kind in KINDS.values() if kind.target != "host"])
    if sessions.result() != EXPECTED:
        campaign.found.violations.append(f"sessions of the killed host ended otherwise: {sessions.result()}")
    return campaign.figures() | {"killed_host": sessions.result()}


def _start(site: Site) -> World:
    """Migrate, let the hosts join, start everything, and return once all hosts are ready."""
    call_command("migrate", verbosity=0)
    group = make_group(name=GROUP, fgpu_per_gpu=4, host_loss_grace=timedelta(seconds=GRACE_S))
    common = {name: value for name, value in site.environment().items() if name not in ("DATABASE_URL", "REDIS_URL")}
    for host in site.hosts:
        host.join(access.join(access.add(host.name, GROUP).token), common)
    image = make_image(reference=SHELL_IMAGE, source=ImageSource.CATALOG)
    for host in site.hosts:
        host.engine.take_image(SHELL_IMAGE)
        host.engine.take_image(TINY_IMAGE)
        workloads.take_fetching_image(host.engine)
    registry = SlowRegistry(site.logs)
    registry.publish(site.hosts[0].engine, image.reference)
    site.start_platform()
    for host in site.hosts:
        host.start()
    ready = HostRow.objects.filter(status=HostStatus.READY)
    until(lambda: ready.count() == len(site.hosts), seconds=START_S)
    workloads.prepare(group)
    people = People(site.urls, group, image)
    return World(site, people, Inspector(site, people.promises), registry, [*site.hosts])


class Campaign:
    """Rounds of faults, and what is found after each."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.found = Verdict()
        self.seed = seed
        self._chance = random.Random(seed)
        self._faults: Counter[str] = Counter()
        self._recovery: dict[str, list[float]] = defaultdict(list)
        self._begun = time.monotonic()
        self._rounds = 0
        self._mended: dict[str, float] = {}  # by target: Unix time when the last fault on it ended
        locks = [world.site.locks[name] for name in ("platform", "database", "broker")]
        self._half_gangs = HalfGangs(lambda: not any(lock.locked() for lock in locks))

    def run(self, kinds: list[Kind], faults: int, seconds: float) -> None:
        """Have at least so many faults happen, each kind at least once, unless the time is over before."""
        waiting = [*kinds]
        self._chance.shuffle(waiting)
        while sum(self._faults.values()) < faults and time.monotonic() - self._begun < seconds:
            count = self._chance.randint(MIN_AT_ONCE, MAX_AT_ONCE)
            drawn = [waiting.pop() for _ in range(min(count, len(waiting)))]
            weights = [kind.weight for kind in kinds]
            drawn += self._chance.choices(kinds, weights, k=count - len(drawn))
            self.round(drawn)

    def round(self, kinds: list[Kind], until_done: "Future[Any] | None" = None) -> None:
        """Have these faults happen at once while people go on, then let everything settle, and look.

        People go on until `until_done` is done, too.
        """
        self._rounds += 1
        self.say(f"round {self._rounds}: {', '.join(kind.name for kind in kinds)}")
        with ThreadPoolExecutor(len(kinds)) as pool:
            under_way = [pool.submit(self._happen, kind, random.Random(self._chance.random())) for kind in kinds]
            while not all(each.done() for each in [*under_way, *filter(None, [until_done])]):
                self.live()
        self.settle([each for each in under_way if not self._failed(each)])

    def settle(self, ended: "list[Future[tuple[str, float]]] | None" = None) -> None:
        """Wait until all is quiet, note how long that took after each fault, and judge."""
        unrest = self.world.inspector.wait_until_quiet()
        quiet_at = time.monotonic()
        for each in ended or ():
            kind, mended_at = each.result()
            self._recovery[kind].append(quiet_at - mended_at)
        verdict = self.world.inspector.judge()
        verdict.violations += [f"not settled: {text}" for text in unrest] + self._half_gangs.take()
        verdict.orphans += self.world.inspector.orphans()
        for name in ("violations", "wrong_words", "lost", "orphans", "leaked_leases"):
            for text in getattr(verdict, name):
                self.say(f"  {name}: {text}")
                getattr(self.found, name).append(f"round {self._rounds}: {text}")
        self.say(f"  settled, {sum(self._faults.values())} faults, {self._age():.0f} s")

    def end(self) -> None:
        """Have all sessions ended: then nothing is to be left of them."""
        self.say("all sessions are ended")
        asked(workloads.end)
        people = self.world.people
        theirs = _live().mains().filter(owner__in=people.tokens)  # replicas end with their deployment
        for pk, owner_id in asked(lambda: list(theirs.values_list("pk", "owner_id"))):
            people.end(self._chance, pk, owner_id)
        until(lambda: asked(lambda: not _live().exists()), seconds=MAX_WAIT_S)
        self.settle()

    def live(self) -> None:
        """Do one thing that people do, and keep the number of live sessions within bounds."""
        chance, people = self._chance, self.world.people
        live = asked(lambda: list(_live().values_list("pk", "status", "command")))
        mine = [row for row in live if row[0] in people.promises.accepted]
        running = [pk for pk, status, command in mine if status == Status.RUNNING and not command]
        parked = [pk for pk, status, _ in mine if status == Status.PARKED]
        if len(live) < MIN_LIVE or (len(live) < MAX_LIVE and chance.random() < 0.5):
            command = chance.choice(["", "", BATCH.format(seconds=chance.randint(0, 4))])
            cluster = gang_faults.shape(chance) if chance.random() < GANGS else None
            people.submit(chance, command, time_limit=chance.choices([0, TIME_LIMIT_S], [9, 1])[0], cluster=cluster)
        elif parked and chance.random() < 0.5:
            people.act(chance, chance.choice(parked), "resume")
        elif running:
            act = chance.choice(["end", "end", "end", "park", "resize"])
            session_id = chance.choice(running)
            if act == "end":
                people.end(chance, session_id)
            elif act == "park":
                people.act(chance, session_id, "park")
            else:
                people.act(chance, session_id, "resize", {"cpu": chance.randint(1, 2)})
        time.sleep(chance.uniform(0.2, 1.0))

    def figures(self) -> dict[str, Any]:
        """Return what the campaign prints."""
        found = self.found
        texts = [*found.violations, *found.wrong_words, *found.lost, *found.orphans, *found.leaked_leases]
        return {
            "faults": dict(self._faults.most_common()),
            "total_faults": sum(self._faults.values()),
            "gang_faults": sum(count for name, count in self._faults.items() if KINDS[name].is_of_gangs),
            "rounds": self._rounds,
            "sessions": len(self.world.people.promises.accepted),
            "violations": len(found.violations),
            "wrong_words": len(found.wrong_words),
            "lost": len(found.lost),
            "orphans_after_60s": len(found.orphans),
            "leaked_leases": len(found.leaked_leases),
            "recovery_s": {kind: _summary(values) for kind, values in sorted(self._recovery.items())},
            "unanswered": self.world.people.promises.unanswered,
            "seed": self.seed,
            "seconds": round(self._age()),
            "texts": texts[:MAX_TEXTS],
        }

    def say(self, text: str) -> None:
        """Write a line on what happens."""
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")

    def _happen(self, kind: Kind, chance: random.Random) -> tuple[str, float]:
        """Have a fault happen, once nothing else acts on its target; return its kind and when it was mended."""
        try:
            with self._target(kind, chance) as host:
                arguments = (self.world, host, chance) if host else (self.world, chance)
                has_happened = kind.act(*arguments)
            self._faults[kind.name] += has_happened is not False
            return kind.name, time.monotonic()
        finally:
            connections.close_all()

    @contextmanager
    def _target(self, kind: Kind, chance: random.Random) -> Iterator[Host | None]:
        """Lend what the fault acts on, once nothing else acts on it and hosts have recovered from the last that did.

        Otherwise many short faults in a row would keep a host away for longer than its grace.
        """
        names = [host.name for host in self.world.hosts] if kind.target == "host" else [kind.target]
        chance.shuffle(names)
        name = until(lambda: self._lock_one(names), seconds=MAX_WAIT_S)
        try:
            since = self._mended.get(name, 0.0)
            until(lambda: asked(lambda: _has_heartbeat(name, since)), seconds=MAX_WAIT_S)
            yield next((host for host in self.world.hosts if host.name == name), None)
        finally:
            self._mended[name] = time.time()
            self.world.site.locks[name].release()

    def _lock_one(self, names: list[str]) -> str:
        """Return the first of these targets that is free, locked; "" where none is."""
        locks = self.world.site.locks
        return next((name for name in names if locks[name].acquire(blocking=False)), "")

    def _failed(self, fault: "Future[tuple[str, float]]") -> bool:
        """Return whether the fault itself went wrong, which is a fault of the campaign and counts."""
        if error := fault.exception():
            self.found.violations.append(f"round {self._rounds}: a fault did not work: {error!r}")
            self.say(f"  a fault did not work: {error!r}")
        return error is not None

    def _age(self) -> float:
        return time.monotonic() - self._begun


def _live() -> SessionQuerySet:
    return Session.objects.filter(resource_group__name=GROUP).exclude(status__in=FINAL)


def _has_heartbeat(target: str, since: float) -> bool:
    """Return whether the host, or any host where the target is none, is ready and has sent a heartbeat since."""
    ready = HostRow.objects.filter(status=HostStatus.READY, heartbeat_at__gt=datetime.fromtimestamp(since, UTC))
    return (ready.filter(name=target) if HostRow.objects.filter(name=target).exists() else ready).exists()


def _summary(values: list[float]) -> dict[str, float]:
    highest = statistics.quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]
    return {"p50": round(statistics.median(values), 1), "p95": round(highest, 1)}
