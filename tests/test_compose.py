"""deploy/compose.yaml on a fresh machine, by the page: it serves, lends the machine, and leaves nothing."""

import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import docker
import pytest

from gpuplatform.bootstrap.production.steps import PRELUDE, steps_of
from resources.images.base import Bases
from resources.images.catalogue.inputs import network_arguments
from resources.images.trust import host_certificates
from tests.containers import ENGINE_URL
from tests.debian import unpack
from tests.exclusive import exclusive
from tests.page_commands import PageReader
from tests.systemd_machine import ROOT, SystemdMachine, closed_network, fresh_machine
from tests.test_installation import CLIENT, SLOW_SECONDS, ask, hosts, runs_session
from tests.tiny_image import TINY_IMAGE, ensure_tiny_image
from tests.wait import until

pytestmark = [pytest.mark.docker, pytest.mark.long(8)]

STEPS: Final = ("packages", "user", "settings", "database", "redis", "proxy")  # that the page names
CODE: Final = "/opt/gpuplatform"
IMAGE: Final = "gpuplatform/platform"  # of deploy/compose.yaml
BUILT: Final = "gptest/platform"
TRIXIE: Final = "deb http://deb.debian.org/debian trixie main"
PLUGIN: Final = "usr/libexec/docker/cli-plugins/docker-compose"
# As the registry's image is, which cannot be reached, with the authorities that this machine trusts.
BASE: Final = """
FROM {base}
RUN apt-get update -q && apt-get install -qy --no-install-recommends ca-certificates
COPY host.crt /usr/local/share/ca-certificates/
RUN update-ca-certificates
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt
"""
IS_READY: Final = "python3 -c \"import urllib.request as ask; ask.urlopen('http://127.0.0.1:8000/readyz', timeout=60)\""
# What the platform must not leave.
LEFT: Final = "docker ps -aq; docker volume ls -q; docker network ls --format '{{.Name}}'"
ADMINISTRATOR: Final = "/etc/gpuplatform/administrator"
CREATE: Final = "docker compose run --rm --no-deps web manage.py createsuperuser"
VALUES: Final = {  # of the page's block
    'echo "DOCKER_GID': f'cd {CODE}\necho "DOCKER_GID',
    "docker compose build": "docker image inspect gpuplatform/platform",  # is built below, for there is no network
    CREATE: (
        f"openssl rand -hex 24 >{ADMINISTRATOR}\n"
        f"{CREATE.replace('web', f'-e DJANGO_SUPERUSER_PASSWORD=$(cat {ADMINISTRATOR}) web', 1)}"
        " --no-input --email root@example.org"
    ),
}


def files_of_clone() -> bytes:
    """Return an archive of tar with the files of this checkout that git knows."""
    command = "git ls-files -z | tar --null --files-from - --owner root --group root -c"
    return subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, check=True).stdout


def build_platform(engine: docker.DockerClient, clone: bytes) -> None:
    """Build deploy/Dockerfile as Compose would, which takes minutes unless this engine has most of it."""
    base = Bases(engine, refresh=False, report=lambda _: None).reference("bookworm")
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        files = {"Dockerfile": BASE.format(base=base), "host.crt": host_certificates(os.environ)}
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    context.seek(0)
    with exclusive("platform-image"):
        build = partial(engine.images.build, custom_context=True, network_mode="host", rm=True)
        build(fileobj=context, tag=f"{BUILT}:base")
        arguments = {"BASE": f"{BUILT}:base"} | network_arguments(os.environ)
        build(fileobj=io.BytesIO(clone), dockerfile="deploy/Dockerfile", tag=f"{BUILT}:1", buildargs=arguments)


@pytest.fixture(scope="module")
def machine() -> Iterator[SystemdMachine]:
    """A machine with PostgreSQL, Redis, Caddy and Compose, a clone, and the image of the platform."""
    clone = files_of_clone()
    ensure_tiny_image()
    with tempfile.TemporaryDirectory() as name, closed_network() as network:
        folder = Path(name)
        folder.chmod(0o755)
        unpack("docker-compose", folder, TRIXIE)
        (folder / "client.py").write_text(CLIENT)
        with closing(docker.DockerClient(ENGINE_URL, timeout=1800)) as engine:
            build_platform(engine, clone)
            for reference, file in ((f"{BUILT}:1", "platform.tar"), (TINY_IMAGE, "tiny.tar")):
                with (folder / file).open("wb") as image:
                    image.writelines(engine.images.get(reference).save(named=True))
        with fresh_machine(folder, network) as machine:
            until(lambda: machine.succeeds("systemctl is-system-running --wait"))
            machine.run(f"""
                ip route del default # which leads nowhere, after a while
                echo nameserver 127.0.0.1 >/etc/resolv.conf
                echo '127.0.0.1 gpu.example.org' >>/etc/hosts
                install -D /folder/{PLUGIN} /{PLUGIN}
                apt-get -qy install --no-install-recommends python3 # for the client
                mkdir {CODE} && ln -s deploy/.env {CODE}/.env
            """)
            machine.unpack(clone, CODE)
            for step in steps_of("web"):
                if step.name in STEPS:
                    machine.run(f"cd {CODE}\nADDRESS=gpu.example.org HOSTS= CERTIFICATE=\n{PRELUDE}\n{step.do}")
            machine.run(f"docker load -qi /folder/platform.tar && docker tag {BUILT}:1 {IMAGE}")
            yield machine


def test_compose_serves_and_leaves_nothing(machine: SystemdMachine) -> None:
    before, reader = machine.run(LEFT), PageReader()
    reader.do(machine, "install", "With Docker Compose", 0, VALUES)
    until(lambda: machine.succeeds(IS_READY), seconds=SLOW_SECONDS)
    assert set(hosts(machine).values()) == {"READY"}
    session = runs_session(machine, machine, group="default")
    assert ask(machine, f"/sessions/{session}/")["status"] == "RUNNING"
    ask(machine, "/sessions/terminate/", ids=[session])
    until(lambda: ask(machine, f"/sessions/{session}/")["status"] == "TERMINATED", seconds=SLOW_SECONDS)
    reader.do(machine, "install", "With Docker Compose", 1, {"docker compose": f"cd {CODE}/deploy\ndocker compose"})
    assert machine.run(LEFT) == before
    assert not machine.run(f"docker images -q {IMAGE}")
