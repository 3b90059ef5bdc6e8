"""Provider `slurm`: each host is a batch job, a pilot that starts a host worker on the node that Slurm gives it.

Slurm's commands run on this machine, or behind the words of COMPUTE_SLURM_PREFIX, such as `ssh gpu@login1`. ssh hands
what follows to a shell of the login node, so no word is passed on that a shell would read otherwise.
"""

import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from django.conf import settings
from rest_framework import serializers

from accounts.serializers import StrictSerializer
from resources import clock
from resources.amounts.units import MIB
from resources.elastic import slurm_words
from resources.elastic.programs import output_of
from resources.elastic.providers import HostRequest, HostShape, ProvidedHost, ProvidedState, ProviderError
from resources.elastic.refusals import refusal_of

TIMEOUT_SECONDS: Final = 60
PASSED_VARIABLES: Final = ("HOME", "PATH", "SLURM_CONF")  # the platform's own hold secrets
IDENTIFIER: Final = re.compile(r"\d{1,12}\Z", re.ASCII)
SECONDS: Final = re.compile(r"\d{1,11}\Z", re.ASCII)  # since 1970, before the year 5139
MAX_WORDS: Final = 300
NO_SHAPE: Final = HostShape(cpus=0, memory_bytes=0)
# Times as seconds since 1970, since Slurm writes them without a time zone; the reason last, as it may have commas.
LIST: Final = (
    *("env", "SLURM_TIME_FORMAT=%s", "squeue", "--me", "--noheader", "--states=all"),
    "--format=%i,%T,%e,%j,%r",
)
SCRIPT: Final = """#!/bin/sh
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
{variables}
cd {checkout} && exec .venv/bin/python -m hostworker.pilot {address} --notice {notice} --grace {grace}
"""


def _name(**options: Any) -> serializers.RegexField:
    """Return a field for a name in Slurm, of characters that mean nothing to a shell."""
    return serializers.RegexField(re.compile(r"^[A-Za-z0-9_][\w.-]*\Z", re.ASCII), max_length=64, **options)


class SlurmConfigurationSerializer(StrictSerializer):
    """What a pool's pilots ask of Slurm; docs/slurm.md says of each field what it is."""

    partition = _name()
    account = _name(default="", allow_blank=True)
    qos = _name(default="", allow_blank=True)
    constraint = _name(default="", allow_blank=True)
    gres = _name(default="gpu")
    time_limit_minutes = serializers.IntegerField(min_value=10, max_value=525_600)
    notice_seconds = serializers.IntegerField(min_value=60, max_value=86_400, default=600)
    grace_seconds = serializers.IntegerField(min_value=10, max_value=86_400, default=30)
    checkout = serializers.RegexField(
        re.compile(r"^/[\w./-]+\Z", re.ASCII),
        max_length=200,
        default="/opt/gpuplatform",
    )
    log = serializers.RegexField(
        re.compile(r"^[\w./%-]+\Z", re.ASCII),
        max_length=200,
        default="gpuplatform-%j.log",
    )
    settings = serializers.DictField(
        child=serializers.RegexField(re.compile(r"^[^\0\r\n]*\Z"), max_length=1000, allow_blank=True),
        default=dict,
    )

    def validate_settings(self, value: dict[str, str]) -> dict[str, str]:
        """Refuse what is no setting."""
        if wrong := [name for name in value if not re.match(r"COMPUTE_[A-Z_]+\Z", name)]:
            raise serializers.ValidationError(f"These are no settings: {', '.join(wrong)[:MAX_WORDS]}.")
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a notice that leaves sessions no time."""
        if attrs["notice_seconds"] * 2 > attrs["time_limit_minutes"] * 60:
            raise serializers.ValidationError({"notice_seconds": "At most half of the time limit."})
        return attrs


class SlurmProvider:
    """Submits, lists and cancels pilots by sbatch, squeue and scancel, as the user that the commands run as."""

    def __init__(self, configuration: Mapping[str, Any], prefix: str) -> None:
        """Take a configuration; raise ValidationError for one that cannot work."""
        serializer = SlurmConfigurationSerializer(data=configuration)
        if not serializer.is_valid():
            raise refusal_of(serializer.errors)
        self._asked = serializer.validated_data
        self._prefix = prefix

    def create(self, request: HostRequest) -> str:
        """Submit a pilot whose job has the host's name, unless one is there; return the number of the job.

        Jobs of one name never run beside each other, in case that two are submitted at once.
        """
        for number, _, _, name, _ in self._jobs("--states=PENDING,CONFIGURING,RUNNING,COMPLETING"):
            if name == request.name:
                return number
        output = self._run(["sbatch", "--parsable", *self._options(request)], self._script(request), request.shape)
        number = output.strip().partition(";")[0]
        if not IDENTIFIER.match(number):
            raise ProviderError(f"sbatch did not say which job it made: {output.strip()[:MAX_WORDS]}")
        return number

    def list(self) -> Sequence[ProvidedHost]:
        """Return the pilots of this installation that Slurm knows, those that ended lately included."""
        return [
            ProvidedHost(
                identifier=number,
                state=slurm_words.STATES.get(state, ProvidedState.FAILED),
                host_name=name,
                reason=slurm_words.of_job(state, reason),
                ends_at=datetime.fromtimestamp(int(end), UTC) if state == "RUNNING" and SECONDS.match(end) else None,
                is_left=state in slurm_words.STATES,  # Slurm lists jobs that failed or were cancelled for minutes
            )
            for number, state, end, name, reason in self._jobs()
            if name.startswith(self._prefix)
        ]

    def delete(self, identifier: str) -> None:
        """Cancel the job; one that has ended, or that there never was, is fine."""
        if IDENTIFIER.match(identifier):
            self._run(["scancel", "--quiet", identifier])

    def _jobs(self, *options: str) -> Sequence[Sequence[str]]:
        """Return number, state, end, name and reason of the user's jobs."""
        rows = (line.split(",", 4) for line in self._run([*LIST, *options]).splitlines())
        return [row for row in rows if len(row) == 5 and IDENTIFIER.match(row[0])]

    def _options(self, request: HostRequest) -> Sequence[str]:
        """Return the options of sbatch: one task on one node, and nothing of our own environment."""
        asked, shape = self._asked, request.shape
        minutes = asked["time_limit_minutes"]
        if request.hold_until is not None:
            minutes = max(1, min(minutes, math.ceil((request.hold_until - clock.now()).total_seconds() / 60)))
        gres = ":".join(filter(None, (asked["gres"], shape.gpu_kind, str(shape.gpu_count))))
        chosen = {
            "job-name": request.name,
            "partition": asked["partition"],
            "account": asked["account"],
            "qos": asked["qos"],
            "constraint": asked["constraint"],
            "nodes": "1",
            "ntasks": "1",
            "cpus-per-task": str(shape.cpus),
            "mem": f"{math.ceil(shape.memory_bytes / MIB)}M",
            "gres": gres if shape.gpu_count else "",
            "time": str(minutes),
            "signal": f"B:USR1@{asked['notice_seconds']}",
            "dependency": "singleton",
            "export": "ALL",
            "output": asked["log"],
        }
        return ["--no-requeue", *(f"--{name}={value}" for name, value in chosen.items() if value)]

    def _script(self, request: HostRequest) -> str:
        """Return the batch script; the token is in it alone, since all users of a machine see the words of commands."""
        variables = {**self._asked["settings"], "GPUPLATFORM_JOIN_TOKEN": request.join_token}
        return SCRIPT.format(
            variables="\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
            checkout=self._asked["checkout"],
            address=shlex.quote(request.join_address),
            notice=self._asked["notice_seconds"],
            grace=self._asked["grace_seconds"],
        )

    def _run(self, words: Sequence[str], given: str = "", shape: HostShape = NO_SHAPE) -> str:
        """Run a command of Slurm's with this standard input, and return its output."""
        if unsafe := [word for word in words if shlex.quote(word) != word]:
            raise ProviderError(f"Slurm is not asked for {unsafe[0]!r}: a shell would read more in it.")
        environment = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ} | {"LC_ALL": "C"}
        command = [*shlex.split(settings.COMPUTE_SLURM_PREFIX), *words]
        code, output, errors = output_of(command, given, TIMEOUT_SECONDS, environment)
        if code:
            raise ProviderError(slurm_words.of_error(errors, self._asked, shape)[:MAX_WORDS])
        return output
