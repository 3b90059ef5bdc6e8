"""What hosts and their programs write: CDI specifications, Slurm's output, programs of providers, reports of GPUs."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from unittest.mock import patch

from django.test import override_settings

from hostworker.app_processes import jupyter
from resources.accelerators import cdi_edits, cdi_files, sysfs
from resources.elastic import command, slurm, slurm_words
from resources.elastic.providers import HostRequest, HostShape, ProviderError
from resources.hosts.measurements import MeasurementError, load
from resources.procfs import listening_socket

PREFIX: Final = "gp-"
REQUEST: Final = HostRequest(
    name="gp-1", group="g", shape=HostShape(cpus=1, memory_bytes=1), join_token="t", join_address="https://a"
)


def _file(data: bytes, name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        yield path


def cdi(data: bytes) -> None:
    """A specification gives devices whose mounts touch nothing that is the host's own, or is told to be refused."""
    for name in ("a.yaml", "a.json"):
        for path in _file(data, name):
            found = list(cdi_files.find(path.parent, [Path("/dev/shm")]))
        for told in found:
            if isinstance(told, str):
                told.encode()
        for device in cdi_files.apart([each for each in found if not isinstance(each, str)]):
            for mount in device.edits.mounts:
                assert not list(cdi_edits._touching(Path(mount.source), [Path("/proc"), Path("/dev/shm")]))
                assert mount.target != "/"
            repr(device).encode()


@contextmanager
def _program(code: int, output: str, errors: str) -> Iterator[None]:
    """Have each program of providers end so."""
    result = (code, output, errors)
    with patch.object(slurm, "output_of", lambda *_: result), patch.object(command, "output_of", lambda *_: result):
        yield


def slurm_output(data: bytes) -> None:
    """Whatever Slurm's commands write, pilots of our own name are listed, or ProviderError is raised."""
    text = data.decode(errors="replace")
    provider = slurm.SlurmProvider({"partition": "p", "time_limit_minutes": 600}, PREFIX)
    with _program(0, text, ""):
        with suppress(ProviderError):
            for each in provider.list():
                assert (each.host_name or "").startswith(PREFIX)
                each.reason.encode()
        with suppress(ProviderError):
            assert provider.create(REQUEST).isascii()
    with _program(1, "", text), suppress(ProviderError):
        provider.list()
    for line in text.splitlines():
        slurm_words.of_job(*line.partition(",")[::2]).encode()


def provider_program(data: bytes) -> None:
    """Whatever a program of an administrator writes, hosts of our own prefix are listed, or ProviderError is raised."""
    with override_settings(COMPUTE_PROVIDER_COMMANDS="/usr/lib/none"):
        provider = command.CommandProvider({"create": ["a"], "list": ["b"], "delete": ["c"]}, PREFIX)
        with _program(0, data.decode(errors="replace"), ""):
            with suppress(ProviderError):
                assert all((each.host_name or "").startswith(PREFIX) for each in provider.list())
            with suppress(ProviderError):
                assert "\0" not in provider.create(REQUEST)
        with _program(1, "", data.decode(errors="replace")), suppress(ProviderError):
            provider.delete("1")


def gpu_report(data: bytes) -> None:
    """A report of a GPU has the form of its schema, or is refused by its own error."""
    for path in _file(data, "report.json"):
        with suppress(MeasurementError):
            assert load(path)["gpu"]["uuid"]


def sockets_and_numbers(data: bytes) -> None:
    """What the kernel, a device's driver or an app's server says is a value within bounds, or nothing."""
    text = data.decode(errors="surrogateescape")
    assert 0 <= sysfs.number_in(text) < 1 << 64
    found = listening_socket(text)
    assert found is None or 0 <= found.port < 1 << 16
    moment = jupyter._moment(data.decode(errors="replace"))
    assert moment is None or min(moment, datetime.now(UTC)).astimezone(UTC)
