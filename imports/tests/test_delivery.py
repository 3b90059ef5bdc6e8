"""Program and job on their way into a container, by the shell and the few programs of its image."""

import subprocess
from typing import Final

import pytest

from imports.runs import delivery
from tests.tiny_image import ensure_tiny_image

pytestmark = pytest.mark.docker

JOB: Final = b'{"id": "one"}'
SHOW: Final = '; ls "$place"; cat "$place/program" "$place/job" | wc -c'


def test_program_and_job_arrive_whole() -> None:
    program = delivery.program()
    assert _received(program + JOB, len(program))[1:] == ["job", "program", str(len(program + JOB))]


def test_what_was_cut_does_not_arrive() -> None:
    program = delivery.program()
    assert _received(program + JOB[:-1], len(program))[1:] == ["0"]


@pytest.mark.parametrize("size", [100_000, 10], ids=["written in part", "not of the size"])
def test_nothing_is_left_of_what_cannot_be_written(size: int) -> None:
    script = f"({delivery.RECEIVE}) >/dev/null 2>&1; echo $?; ls -A /dev/shm"
    command = ["docker", "run", "--rm", "-i", "--shm-size", "64k", "--user", "root", ensure_tiny_image()]
    arguments = ["sh", "-c", script, "sh", "one", str(size), "0", ""]
    found = subprocess.run([*command, *arguments], input=bytes(max(size, 20)), capture_output=True, check=True)
    assert found.stdout.decode().split() == ["1"]


def _received(content: bytes, size: int) -> list[str]:
    """Return what there is in a container with busybox alone once this was sent, by the lines that say so."""
    script = f"place={delivery.PLACE}$1; ({delivery.RECEIVE}){SHOW}"
    command = ["docker", "run", "--rm", "-i", "--user", "root", ensure_tiny_image(), "sh", "-c", script, "sh"]
    sizes = [str(size), str(len(JOB)), ""]
    found = subprocess.run([*command, "one", *sizes], input=content, capture_output=True, check=True)
    return found.stdout.decode().split()
