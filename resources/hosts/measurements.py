"""What the hardware protocol of fGPU found on a host's GPUs: its report is checked, stored, and told in words.

Each report that is stored gets an entry in the audit log, by a trigger: hosts may write no entries.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NoReturn

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from fgpu.hardware.report import MAX_BYTES, SCHEMA, failed_steps
from resources import clock
from resources.hosts.frequent import insert_rows
from resources.models import FIGURES, Gpu, GpuMeasurement

CLOCK_TOLERANCE: Final = timedelta(minutes=5)
STEPS: Final = {
    "views": _("what tools show"),
    "memory": _("memory"),
    "processes": _("processes of one session"),
    "pinned": _("page-locked memory"),
    "contention": _("sessions at the same time"),
    "burst": _("idle time"),
    "launches": _("launches"),
    "time": _("one session by itself"),
    "pytorch": "PyTorch",
    "nccl": "NCCL",
    "jax": "JAX",
}
PHRASES: Final = {
    "share_error_points": _("shares within %(figure)s points"),
    "idle_used_percent": _("%(figure)s %% of idle time used"),
    "handback_ms": _("idle time given back within %(figure)s ms"),
    "launch_added_ns": _("launch %(figure)s ns"),
    "torch_training_percent": _("PyTorch trains at 25 %% with %(figure)s %% of the speed"),
    "jax_training_percent": _("JAX trains at 25 %% with %(figure)s %% of the speed"),
}


class MeasurementError(Exception):
    """A report that cannot be stored; the message says why."""


def load(path: Path) -> Mapping[str, Any]:
    """Return the report in a file. Raises MeasurementError for what is none."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise MeasurementError(f"{path} is no report: it is larger than {MAX_BYTES >> 20} MiB.")
        report = json.loads(text, parse_constant=_refuse)
    except (OSError, ValueError, RecursionError) as error:
        raise MeasurementError(f"{path} is no report: {error}") from error
    from jsonschema import Draft202012Validator  # every process would load it at its start, for this rare report
    from jsonschema.exceptions import best_match

    if problem := best_match(Draft202012Validator(json.loads(SCHEMA.read_text())).iter_errors(report)):
        where = ".".join(map(str, problem.absolute_path))
        raise MeasurementError(f"{path} is no report: {where and where + ': '}{problem.message[:300]}")
    found: Mapping[str, Any] = report
    return found


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def store(host_name: str, report: Mapping[str, Any], *, by: str) -> GpuMeasurement:
    """Store what a report of `load` says of a GPU of the host, in place of an older one; one statement. Idempotent.

    Raises MeasurementError, and DatabaseError where the host has reported too often.
    """
    gpu = Gpu.objects.filter(uuid=report["gpu"]["uuid"], host__name=host_name, is_present=True).first()
    if gpu is None:
        raise MeasurementError(f"The report is of {report['gpu']['uuid']}, which the host {host_name} does not have.")
    if not report["complete"]:
        raise MeasurementError("The report is not complete: the run was ended in the middle.")
    if report["simulated"] is not gpu.is_simulated:
        raise MeasurementError("A simulated GPU has reports of the simulated driver, and a real one has none.")
    made = GpuMeasurement(gpu=gpu, measured_at=_date(report["date"]), reported_by=by[:254], **_columns(report))
    before = GpuMeasurement.objects.filter(gpu=gpu).first()
    if before and before.measured_at > made.measured_at:
        raise MeasurementError(f"A later one, of {before.measured_at:%Y-%m-%d %H:%M} UTC, is stored already.")
    if before is None or before.measured_at < made.measured_at:
        insert_rows([made], ["gpu"], [field.name for field in made._meta.concrete_fields if not field.primary_key])
    return made


def _date(text: str) -> datetime:
    try:
        date = datetime.fromisoformat(text)
        if date <= clock.now() + CLOCK_TOLERANCE:
            return date
    except (TypeError, ValueError) as error:  # without a time zone, too
        raise MeasurementError(f"The report's date, {text!r}, is none.") from error
    raise MeasurementError(f"The report is of the future: {text}.")


def _columns(report: Mapping[str, Any]) -> dict[str, Any]:
    figures = report["figures"]
    skipped = [step["step"] for step in report["steps"] if step["state"] == "skipped"]
    return {
        "is_simulated": report["simulated"],
        "failed": " ".join(failed_steps(report))[:200],
        "skipped": " ".join(skipped)[:200],
        "memory_exact": figures["memory_exact"],
        **{name: report[name] for name in ("driver", "cuda", "version", "hook")},
        **{name: figures[name] for name in FIGURES},
    }


def of_gpus(gpus: Iterable[Gpu]) -> list[str]:
    """Return what was measured of those GPUs that were, in words."""
    found = ((gpu.index, getattr(gpu, "measurement", None)) for gpu in gpus if gpu.is_present)
    return [f"GPU {index}: {summary(measured)}" for index, measured in found if measured]


def summary(measurement: GpuMeasurement) -> str:
    """Return what was measured, in words."""
    facts = {"date": f"{measurement.measured_at:%Y-%m-%d}", "driver": measurement.driver}
    sentences = [gettext("Measured on %(date)s with driver %(driver)s: %(figures)s.")]
    facts["figures"] = ", ".join(_phrases(measurement)) or gettext("nothing")
    if measurement.is_simulated:
        sentences.append(gettext("The GPU is simulated: no hardware is behind these figures."))
    if facts_of := _named(measurement.failed):
        facts["failed"] = facts_of
        sentences.append(gettext("Failed: %(failed)s."))
    if facts_of := _named(measurement.skipped):
        facts["skipped"] = facts_of
        sentences.append(gettext("Left out: %(skipped)s."))
    if measurement.is_outdated:
        facts["now"] = measurement.gpu.host.gpu_driver
        sentences.append(gettext("Warning: the driver is %(now)s since then; measure again."))
    return " ".join(sentences) % facts


def _phrases(measurement: GpuMeasurement) -> Iterable[str]:
    if measurement.memory_exact is not None:
        yield gettext("memory exact") if measurement.memory_exact else gettext("memory NOT exact")
    for name, phrase in PHRASES.items():
        value = getattr(measurement, name)
        if value is not None:
            sign = "+" if name == "launch_added_ns" else ""
            yield str(phrase) % {"figure": f"{round(value, 1):{sign}g}"}


def _named(steps: str) -> str:
    """Return the names of steps; what a host says beside those that there are is not shown."""
    return ", ".join(str(STEPS[step]) for step in steps.split() if step in STEPS)
