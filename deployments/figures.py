"""What deployments have served, as the processes of the data plane report it each second, kept in Redis for hours.

Losable: without Redis there are no figures, and replicas that drain are given all the time that they may take.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from proxy.authorization.control_plane import DURATION_BOUNDS, ServiceFigures, latency_bound
from resources import clock
from sessions.notify import proxies_redis

RETENTION: Final = timedelta(hours=3)
TOTALS_RETENTION: Final = timedelta(days=4)  # three times the longest step of a rollout, without a request
REPORT_SECONDS: Final = 5.0  # after which a process that has not reported serves nothing any more
MINUTE: Final = 60
STEPS: Final = {  # seconds of the periods that are kept, and for how long
    MINUTE: RETENTION,
    15 * MINUTE: timedelta(hours=26),
    120 * MINUTE: timedelta(days=8),
}
_PROCESSES: Final = "gp.serving:processes"  # that report, and when they did last


@dataclass(frozen=True, slots=True, kw_only=True)
class MinuteFigures:
    """What a deployment has served in one minute, or a longer period, which begins at `at`, in Unix seconds."""

    at: int
    requests: int = 0
    errors: int = 0
    rejected: int = 0
    seconds: float = 0.0  # sum of the durations
    sent_bytes: int = 0
    durations: Sequence[int] = ()  # requests by DURATION_BOUNDS, and one that took longer
    by_replica: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # requests and errors by session id
    outstanding_seconds: int = 0  # for which requests were under way, added up
    waiting_seconds: int = 0  # for which requests waited
    prompt_tokens: int = 0  # that models have read
    completion_tokens: int = 0  # that they have written

    def quantile(self, share: float) -> float | None:
        """Return the bound, in seconds, below which this share of the requests stayed; None without any."""
        return quantile(self.durations, share)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionTotals:
    """What a revision has answered, since its counts began or in a time."""

    requests: int = 0
    errors: int = 0
    latencies: Mapping[int, int] = field(default_factory=dict)  # requests by `latency_bin`
    last_at: float = 0.0  # when it has answered last, in Unix seconds

    def quantile(self, share: float) -> float | None:
        """Return the duration, in seconds, below which this share of the requests stayed; None without any."""
        total, seen = sum(self.latencies.values()), 0
        for number, count in sorted(self.latencies.items()):
            seen += count
            if seen >= share * total:
                return latency_bound(number)
        return None

    def since(self, before: "RevisionTotals") -> "RevisionTotals":
        """Return what was answered since these totals; all there is if they have begun anew, as without Redis."""
        if self.requests < before.requests:
            return self
        latencies = {number: count - before.latencies.get(number, 0) for number, count in self.latencies.items()}
        return RevisionTotals(
            requests=self.requests - before.requests,
            errors=max(0, self.errors - before.errors),
            latencies={number: count for number, count in latencies.items() if count > 0},
            last_at=self.last_at,
        )

    def as_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return {"requests": self.requests, "errors": self.errors, "latencies": {**self.latencies}}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "RevisionTotals":
        """Return the totals that were stored."""
        latencies = {int(number): count for number, count in stored["latencies"].items()}
        return cls(requests=stored["requests"], errors=stored["errors"], latencies=latencies)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadNow:
    """What a deployment serves now."""

    waiting: int = 0  # requests that wait for a replica
    outstanding: Mapping[str, int] = field(default_factory=dict)  # requests under way, by session id


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSoFar:
    """What a deployment is asked. None while no process of the data plane reports, whatever it serves."""

    outstanding: int | None = None  # requests under way or waiting now
    served: int | None = None  # requests that have ended or were refused, in some hours at least


def store(process: str, figures: Sequence[ServiceFigures]) -> None:
    """Add what the process, which has this name among all, has served since its last report, nothing perhaps.

    Raises RedisError.
    """
    now = clock.now().timestamp()
    by_deployment: dict[str, list[ServiceFigures]] = {}
    for each in figures:
        by_deployment.setdefault(each.deployment, []).append(each)
    with proxies_redis().pipeline(transaction=False) as pipeline:
        pipeline.zadd(_PROCESSES, {process: now})
        pipeline.zremrangebyscore(_PROCESSES, 0, now - MINUTE)
        for deployment, reported in by_deployment.items():
            last = {each.session: each.outstanding for each in reported}
            outstanding = {session: count for session, count in last.items() if count}
            report = json.dumps({"at": now, "outstanding": outstanding})
            pipeline.hset(_now_key(deployment), process, report)
            if busy := {session: now for session in outstanding if session}:
                pipeline.zadd(_busy_key(deployment), busy)
            pipeline.zremrangebyscore(_busy_key(deployment), 0, now - RETENTION.total_seconds())
            _add_to_periods(pipeline, deployment, _sums(reported), int(now))
            pipeline.incrby(_served_key(deployment), sum(each.requests + each.rejected for each in reported))
            _add_totals(pipeline, deployment, reported, now)
            for key in (_now_key(deployment), _busy_key(deployment), _served_key(deployment)):
                pipeline.expire(key, int(RETENTION.total_seconds()))
        pipeline.execute()


def last_busy(deployment: str) -> dict[str, float]:
    """Return when each replica had a request under way last, in Unix seconds, by session id. Raises RedisError."""
    found: Any = proxies_redis().zrange(_busy_key(deployment), 0, -1, withscores=True)
    return {_text(session): float(at) for session, at in found}


def load_now(deployment: str) -> LoadNow:
    """Return what all processes together serve now. Raises RedisError."""
    oldest, sums = clock.now().timestamp() - REPORT_SECONDS, dict[str, int]()
    for process, raw in proxies_redis().hgetall(_now_key(deployment)).items():
        report = json.loads(raw)
        if report["at"] < oldest:  # it has ended, or serves nothing
            proxies_redis().hdel(_now_key(deployment), _text(process))
            continue
        for session, count in report["outstanding"].items():
            sums[session] = sums.get(session, 0) + count
    return LoadNow(waiting=sums.pop("", 0), outstanding=sums)


def current(deployments: Sequence[str]) -> list[ServedSoFar]:
    """Return what each of these deployments is asked now; one round trip. Raises RedisError."""
    oldest = clock.now().timestamp() - REPORT_SECONDS
    with proxies_redis().pipeline(transaction=False) as pipeline:
        pipeline.zcount(_PROCESSES, oldest, "+inf")
        for deployment in deployments:
            pipeline.hvals(_now_key(deployment))
            pipeline.get(_served_key(deployment))
        processes, *found = pipeline.execute()
    if not processes:
        return [ServedSoFar() for _ in deployments]
    pairs = zip(found[::2], found[1::2], strict=True)
    return [
        ServedSoFar(outstanding=_outstanding(reports, oldest), served=int(served or 0)) for reports, served in pairs
    ]


def _outstanding(reports: Sequence[bytes], oldest: float) -> int:
    loaded = [json.loads(report) for report in reports]
    return sum(sum(report["outstanding"].values()) for report in loaded if report["at"] >= oldest)


def minutes(deployment: str, count: int, step: int = MINUTE) -> list[MinuteFigures]:
    """Return the figures of the last `count` minutes, or periods of so many seconds of STEPS, the running one last.

    Raises RedisError.
    """
    last = int(clock.now().timestamp()) // step * step
    starts = range(last - (count - 1) * step, last + 1, step)
    with proxies_redis().pipeline(transaction=False) as pipeline:
        for at in starts:
            pipeline.hgetall(_period_key(deployment, step, at))
        return [_figures(at, found) for at, found in zip(starts, pipeline.execute(), strict=True)]


def revision_totals(deployment: str) -> dict[int, RevisionTotals]:
    """Return what each revision has answered since its counts began, by number. Raises RedisError."""
    return _revisions(proxies_redis().hgetall(_totals_key(deployment)))


def quantile(durations: Sequence[int], share: float) -> float | None:
    """Return the bound, in seconds, below which this share of the requests stayed; None without any.

    Of those beyond the last bound it is that one.
    """
    total, seen = sum(durations), 0
    for bound, count in zip((*DURATION_BOUNDS, DURATION_BOUNDS[-1]), durations, strict=False):
        seen += count
        if total and seen >= share * total:
            return bound
    return None


def _sums(reported: Sequence[ServiceFigures]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for each in reported:
        counts = {
            "requests": each.requests,
            "errors": each.errors,
            "rejected": each.rejected,
            "outstanding" if each.session else "waiting": each.outstanding,  # reported once a second
            "bytes": each.sent_bytes,
            "prompt tokens": each.prompt_tokens,
            "completion tokens": each.completion_tokens,
            "microseconds": round(each.seconds * 1e6),
            f"requests of {each.session}": each.requests if each.session else 0,
            f"errors of {each.session}": each.errors if each.session else 0,
            **{f"duration {number}": count for number, count in enumerate(each.durations)},
        }
        for name, amount in counts.items():
            if amount:
                sums[name] = sums.get(name, 0) + amount
    return sums


def _add_to_periods(pipeline: Any, deployment: str, sums: Mapping[str, int], now: int) -> None:
    """Add the sums to the running periods; what tells replicas apart, to that of the minute alone."""
    for step, retention in STEPS.items():
        key = _period_key(deployment, step, now // step * step)
        for name, amount in sums.items():
            if step == MINUTE or not name.startswith(("requests of ", "errors of ")):
                pipeline.hincrby(key, name, amount)
        pipeline.expire(key, int(retention.total_seconds()))


def _add_totals(pipeline: Any, deployment: str, reported: Sequence[ServiceFigures], now: float) -> None:
    key = _totals_key(deployment)
    sums: Counter[str] = Counter()
    for each in reported:
        sums.update(_of_revision(each))
    for name, amount in (+sums).items():  # those above 0
        pipeline.hincrby(key, name, amount)
    for number in {each.revision for each in reported if each.revision and each.requests}:
        pipeline.hset(key, f"revision {number} at", int(now))
    pipeline.expire(key, int(TOTALS_RETENTION.total_seconds()))


def _of_revision(each: ServiceFigures) -> dict[str, int]:
    if not each.revision:
        return {}
    prefix = f"revision {each.revision}"
    latencies = {f"{prefix} latency {number}": count for number, count in each.latencies.items()}
    return {f"{prefix} requests": each.requests, f"{prefix} errors": each.errors, **latencies}


def _revisions(found: Mapping[Any, Any]) -> dict[int, RevisionTotals]:
    sums: dict[int, dict[str, int]] = {}
    for raw, amount in found.items():
        kind, _, rest = _text(raw).partition(" ")
        if kind == "revision":
            number, _, name = rest.partition(" ")
            sums.setdefault(int(number), {})[name] = int(amount)
    return {
        number: RevisionTotals(
            requests=each.get("requests", 0),
            errors=each.get("errors", 0),
            latencies={int(name.split()[1]): count for name, count in each.items() if name.startswith("latency ")},
            last_at=float(each.get("at", 0)),
        )
        for number, each in sorted(sums.items())
    }


def _figures(at: int, found: Mapping[bytes, bytes]) -> MinuteFigures:
    sums = {_text(name): int(amount) for name, amount in found.items()}
    sessions = [name.removeprefix("requests of ") for name in sums if name.startswith("requests of ")]
    return MinuteFigures(
        at=at,
        requests=sums.get("requests", 0),
        errors=sums.get("errors", 0),
        rejected=sums.get("rejected", 0),
        seconds=sums.get("microseconds", 0) / 1e6,
        sent_bytes=sums.get("bytes", 0),
        durations=[sums.get(f"duration {number}", 0) for number in range(len(DURATION_BOUNDS) + 1)],
        by_replica={pk: (sums.get(f"requests of {pk}", 0), sums.get(f"errors of {pk}", 0)) for pk in sessions},
        outstanding_seconds=sums.get("outstanding", 0),
        waiting_seconds=sums.get("waiting", 0),
        prompt_tokens=sums.get("prompt tokens", 0),
        completion_tokens=sums.get("completion tokens", 0),
    )


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode()


def _now_key(deployment: str) -> str:
    return f"gp.serving:{deployment}:now"


def _served_key(deployment: str) -> str:
    return f"gp.serving:{deployment}:served"


def _busy_key(deployment: str) -> str:
    return f"gp.serving:{deployment}:busy"


def _totals_key(deployment: str) -> str:
    return f"gp.serving:{deployment}:revisions"


def _period_key(deployment: str, step: int, at: int) -> str:
    return f"gp.serving:{deployment}:{step}:{at}"
