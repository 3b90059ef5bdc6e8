"""Sudo by policy in the images of the catalogue: what those who may can install in a session, and others cannot."""

from collections.abc import Iterator

import pytest

from hostworker.runtime.tests.runtime_worlds import DockerWorld, make_spec
from hostworker.runtime_protocol import ContainerSpec
from resources.amounts.units import GIB
from tests.images import ENTRIES, ensure_images

pytestmark = pytest.mark.docker


@pytest.fixture
def world() -> Iterator[DockerWorld]:
    made = DockerWorld("")
    yield made
    made.clean_up()


def session_of(world: DockerWorld, label: str, *, allow_sudo: bool) -> ContainerSpec:
    """Start a container as sessions have it."""
    ensure_images([label])
    spec = make_spec(ENTRIES[label].reference, memory_bytes=GIB, allow_sudo=allow_sudo)
    world.runtime().create(spec)
    world.runtime().start(spec.session, spec.attempt)
    return spec


def output_of(world: DockerWorld, spec: ContainerSpec, command: str) -> str:
    """Run a command as the session's user; it must succeed."""
    code, output = world.execute(spec.session, spec.attempt, command, user="work")
    assert code == 0, output
    return output.strip()


@pytest.mark.parametrize("label", ["Python 3.11", pytest.param("Python 3.13", marks=pytest.mark.long)])
def test_sudo_installs_packages_of_pip_and_debian(world: DockerWorld, label: str) -> None:
    spec = session_of(world, label, allow_sudo=True)
    simulated = output_of(world, spec, "sudo apt-get install --simulate figlet")
    assert "Inst figlet" in simulated, "the lists are there without an update"
    output_of(world, spec, "sudo apt-get install -qy figlet")
    assert output_of(world, spec, "figlet hello")
    output_of(world, spec, "sudo apt-get update -q")
    output_of(world, spec, "sudo pip install -q colorama")
    where = output_of(world, spec, "python -c 'import colorama; print(colorama.__file__)'")
    assert where.startswith("/opt/python/")
    variables = "https_proxy=http://proxy:1 PIP_INDEX_URL=http://index:1"
    kept = output_of(world, spec, f"{variables} sudo sh -c 'echo $https_proxy $PIP_INDEX_URL $PIP_CERT'")
    assert kept == "http://proxy:1 http://index:1 /etc/ssl/certs/ca-certificates.crt"


def test_sudo_refuses_without_the_policy(world: DockerWorld) -> None:
    spec = session_of(world, "Python 3.11", allow_sudo=False)
    for command in ("sudo -n true", "sudo -n pip install colorama", "sudo -n apt-get update"):
        code, output = world.execute(spec.session, spec.attempt, command, user="work")
        assert code != 0
        assert "your resource policy does not allow root rights" in output
