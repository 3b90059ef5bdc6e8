"""Thousands of stories: `python -m tests.virtual.campaign --seeds 20000`; prints one JSON object as its last line."""

import argparse
import gc
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from bench.sizes import size

ROOT: Final = Path(__file__).resolve().parent.parent.parent
TOLD_BETWEEN_LINES: Final = 1000  # by one process, about how far it is
MAX_TOLD: Final = 5  # failing stories that are made shorter and printed
STORY_SECONDS: Final = 1800  # after which a story, which takes seconds, counts as one without an end
SHORTENING_SECONDS: Final = 300.0  # for one failing story: it is told hundreds of times
COUNTS: Final = (
    "seeds",
    "operations",
    "sessions",
    "violations",
    "wrong_words",
    "lost",
    "orphans_after_60s",
    "leaked_leases",
)


@dataclass
class Result:
    """What a campaign found."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    failing: list[dict[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return it as one object."""
        figures: dict[str, Any] = {name: self.counts[name] for name in COUNTS}
        return figures | {"faults": dict(self.faults.most_common()), "failing": self.failing}


class EndlessStoryError(BaseException):
    """A story has no end: nothing of the product may catch it."""


def run(seeds: Iterable[int], *, max_told: int = MAX_TOLD, minutes: float = math.inf) -> Result:
    """Tell the stories of these seeds in this process, on its database, or as many as these minutes allow."""
    from tests.virtual.story import Story, shortest, story_of
    from tests.virtual.verdict import Judge, Verdict
    from tests.virtual.world import virtual_world

    result, until = Result(), time.monotonic() + 60 * minutes
    with virtual_world() as world:

        def verdict_on(story: Story) -> Verdict:
            world.reset(story.hosts)
            judge = Judge(world)
            try:
                with _bounded():
                    return judge.judge(story)
            except EndlessStoryError as error:
                judge.verdict.violations.append(f"it has not ended: {_place(error)}")
                return judge.verdict

        def shortened(story: Story) -> Story:
            last = time.monotonic() + SHORTENING_SECONDS
            return shortest(story, lambda told: time.monotonic() < last and bool(verdict_on(told).problems))

        for seed in itertools.takewhile(lambda _: time.monotonic() < until, seeds):
            story = story_of(seed)
            verdict = verdict_on(story)
            result.counts.update(
                seeds=1,
                operations=len(story.operations),
                sessions=verdict.sessions,
                violations=len(verdict.violations),
                wrong_words=len(verdict.wrong_words),
                lost=len(verdict.lost),
                orphans_after_60s=len(verdict.orphans),
                leaked_leases=len(verdict.leaked_leases),
            )
            if result.counts["seeds"] % TOLD_BETWEEN_LINES == 0:
                sys.stderr.write(f"{result.counts['seeds']} stories, {len(result.failing)} of them failed\n")
            if verdict.problems and len(result.failing) < max_told:
                failing: dict[str, Any] = {"seed": seed, "problems": verdict.problems}  # as it was told first
                sys.stderr.write(f"{json.dumps(failing, indent=1)}\n")
                found = shortened(story)
                failing["shortest"] = {"story": str(found), "problems": verdict_on(found).problems}
                result.failing.append(failing)
                sys.stderr.write(f"{json.dumps(failing, indent=1)}\n")
        result.faults = world.faults
    return result


@contextmanager
def _bounded() -> Iterator[None]:
    """Raise EndlessStoryError in the block after `STORY_SECONDS`."""

    def end(*_: object) -> NoReturn:
        raise EndlessStoryError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(STORY_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _place(error: BaseException) -> str:
    """Return where it was raised, the callers last."""
    frames = traceback.extract_tb(error.__traceback__)[-2::-1]  # the last is of the signal's handler
    return " < ".join(f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in frames)


def main() -> None:
    """Run the campaign, in as many processes as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=size(20_000, 20))
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no other story is begun")
    parser.add_argument("--plant", default="", help="a fault of tests/virtual/plants.py that is to be found")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    if options.part is not None:
        result = _run_part(seeds[options.part :: options.processes], options)
        sys.stdout.write(json.dumps(result.as_json()) + "\n")
        return
    begun = time.monotonic()
    parts = [_start_part(options, number) for number in range(options.processes)]
    found = [json.loads(part.communicate()[0].splitlines()[-1]) for part in parts]
    figures = _sum(found) | {"seconds": round(time.monotonic() - begun), "processes": options.processes}
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.exit(bool(figures["failing"]))


def _start_part(options: argparse.Namespace, number: int) -> "subprocess.Popen[str]":
    """Start a process that tells every n-th story."""
    command = [sys.executable, "-m", "tests.virtual.campaign", "--part", str(number)]
    command += ["--seeds", str(options.seeds), "--first", str(options.first), "--processes", str(options.processes)]
    command += ["--plant", options.plant, "--minutes", str(options.minutes)]
    environment = os.environ | {"PYTHONHASHSEED": "0"}  # or a story may go otherwise when it is told again
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def _run_part(seeds: Iterable[int], options: argparse.Namespace) -> Result:
    """Tell stories on a PostgreSQL of this process's own."""
    with private_database(str(options.part)):
        from tests.virtual.plants import planted

        with planted(options.plant) if options.plant else nullcontext():
            return run(seeds, minutes=options.minutes)


@contextmanager
def private_database(name: str, *, with_redis: bool = False) -> Iterator[None]:
    """Set Django up on a PostgreSQL of this process's own, below var, and on such a Redis where it is asked for."""
    from tests import plugin

    folder = ROOT / "var" / f"virtual-{name}"
    os.environ.update(plugin.ENVIRONMENT, COMPUTE_VAR_DIR=str(folder), DJANGO_SETTINGS_MODULE="gpuplatform.settings")
    import django
    from django.conf import settings

    settings.DEBUG = False  # or each query would be kept
    settings.DATABASES["default"]["OPTIONS"].pop("pool")
    settings.DATABASES["default"]["CONN_MAX_AGE"] = None
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    django.setup()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)  # what a story leaves is little, and what is imported much
    from operations.embedded_servers import redis_and_postgres as services
    from tests.migrated import make_test_database

    folder.mkdir(parents=True, exist_ok=True)
    with services.running(folder, take_over=True, with_redis=with_redis):
        plugin.write_without_care(folder)
        make_test_database()
        yield


def _sum(parts: list[dict[str, Any]]) -> dict[str, Any]:
    faults: Counter[str] = Counter()
    for part in parts:
        faults.update(part["faults"])
    failing = sorted(
        (each for part in parts for each in part["failing"]), key=lambda each: len(each["shortest"]["story"])
    )
    figures: dict[str, Any] = {name: sum(part[name] for part in parts) for name in COUNTS}
    return figures | {"faults": dict(faults.most_common()), "failing": failing}


if __name__ == "__main__":
    main()
