"""The Debian package on fresh machines without a network: installed by role, interrupted, used, joined and purged."""

import ipaddress
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import docker
import pytest

from tests.deb_package import package_folder
from tests.systemd_machine import FRESH, FRESH_UBUNTU, ROOT, SystemdMachine, closed_network, fresh_machine
from tests.tiny_image import TINY_IMAGE, ensure_tiny_image
from tests.wait import until

pytestmark = [pytest.mark.docker, pytest.mark.long(16)]

IMAGES: Final = {"debian": FRESH, "ubuntu": FRESH_UBUNTU}
PYTHON: Final = {"debian": "3.11", "ubuntu": "3.12"}
MANAGE: Final = "gpuplatform-manage"
WEB: Final = f"{MANAGE} install web gpu.example.org --admin root@example.org"
AUTHORITY: Final = "/var/lib/caddy/.local/share/caddy/pki/authorities/local/root.crt"
SLOW_SECONDS: Final = 300.0
DROP_IN: Final = "/etc/systemd/system/gpuplatform-host.service.d"
# What an installation changes, packages and their logs aside.
STATE: Final = r"""
find /etc /usr/lib/gpuplatform /usr/sbin /var/lib/gpuplatform /home ! -type d ! -path '/etc/*-' \
    ! -name ld.so.cache ! -name mtab -exec sha256sum {} + 2>/dev/null | sort -k 2
find /etc /usr/lib/gpuplatform /var/lib/gpuplatform -type d 2>/dev/null | sort
runuser -u postgres -- psql -Atc 'SELECT rolname FROM pg_roles' -c 'SELECT datname FROM pg_database' | sort
docker ps -aq
docker network ls --format '{{.Name}}' | sort
docker images -q
! iptables-save | grep GP-
"""
# Carries the first step out, which installs the distribution's packages.
PACKAGES: Final = """
from gpuplatform.bootstrap.production.steps import InstallMachine, steps_of
variables = {"ADDRESS": "gpu.example.org", "ADMIN": "root@example.org", "CERTIFICATE": "", "HOSTS": ""}
assert InstallMachine("web", variables).run(steps_of("web")[0].do)
"""
# Runs each step as it would be if the machine had gone down after any of its lines, and then whole.
INTERRUPTED: Final = """
import subprocess, sys
from gpuplatform.bootstrap.production.steps import InstallMachine, steps_of
variables = {"ADDRESS": "gpu.example.org", "ADMIN": "root@example.org", "CERTIFICATE": "", "HOSTS": "172.17.0.0/16"}
machine = InstallMachine("web", variables)
for step in steps_of("web"):
    lines, tried = step.do.splitlines(keepends=True), 0
    for number in range(1, len(lines)):
        part = "".join(lines[:number])
        if part.strip() and subprocess.run(["sh", "-nc", part], capture_output=True).returncode == 0:
            machine.run(part)
            tried += 1
    assert machine.run(step.do) and (not step.done or machine.has(step)), step.name
    print("INTERRUPTED", step.name, tried)
"""
ANSIBLE: Final = "ansible-core==2.19.14"
PLAYBOOK: Final = """
- hosts: localhost
  connection: local
  roles: [gpuplatform]
  vars:
    gpuplatform_package: "{{ lookup('fileglob', '/folder/*.deb') }}"
    gpuplatform_address: gpu.example.org
    gpuplatform_admin: root@example.org
"""
# Signs in over TLS and asks for what is named.
CLIENT: Final = """
import json, pathlib, sys, urllib.request
def ask(path, body=None, token=""):
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Token {token}"} if token else {})
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(f"https://gpu.example.org/api/v1{path}", data, headers)
    return json.load(urllib.request.urlopen(request))
kept = pathlib.Path("/run/token")  # as sign-ins are limited
if not kept.exists():
    password = open("/etc/gpuplatform/administrator").read().strip()
    kept.write_text(ask("/auth/token/", {"email": "root@example.org", "password": password})["token"])
print(json.dumps(ask(sys.argv[1], json.loads(sys.argv[2]), kept.read_text())))
"""


@pytest.fixture(scope="module", params=IMAGES)
def distribution(request: pytest.FixtureRequest) -> str:
    """What the machines have, and the package is built for."""
    return str(request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, distribution: str) -> Path:
    """A folder with the package, and what the tests need beside it."""
    folder = tmp_path_factory.mktemp("deb")
    for package in package_folder(distribution).iterdir():
        shutil.copy(package, folder)
    (folder / "packages.py").write_text(PACKAGES)
    (folder / "interrupted.py").write_text(INTERRUPTED)
    (folder / "client.py").write_text(CLIENT)
    (folder / "site.yml").write_text(PLAYBOOK)
    shutil.copytree(ROOT / "deploy/ansible/roles", folder / "roles")
    ensure_tiny_image()
    with closing(docker.from_env()) as engine, (folder / "tiny.tar").open("wb") as file:
        file.writelines(engine.images.get(TINY_IMAGE).save(named=True))
    return folder


@pytest.fixture(scope="module")
def network() -> Iterator[str]:
    with closed_network() as name:
        yield name


@pytest.fixture(scope="module")
def server(folder: Path, network: str, distribution: str) -> Iterator[SystemdMachine]:
    """A machine with the package and the servers that it needs, but nothing of the platform."""
    with fresh_machine(folder, network, IMAGES[distribution]) as machine:
        add_package(machine)
        machine.run("echo '127.0.0.1 gpu.example.org' >>/etc/hosts")
        machine.run("cd /usr/lib/gpuplatform; PYTHONPATH=. .venv/bin/python -B /folder/packages.py")
        machine.run(
            "apt-get -qy install --no-install-recommends caddy"
        )  # packages stay, so it belongs to the state before
        yield machine


def add_package(machine: SystemdMachine) -> None:
    machine.run("echo nameserver 127.0.0.1 >/etc/resolv.conf")  # which refuses at once, where Docker's asks for a while
    until(lambda: machine.succeeds("systemctl is-system-running --wait"))
    machine.run("ip route del default")  # which leads nowhere, after a while
    machine.run("apt-get -qy install --no-install-recommends /folder/*.deb")


def killed(machine: SystemdMachine, command: str, step: str) -> None:
    """Begin an installation and kill it with all that it has started as it begins this step."""
    machine.run(f"systemd-run -q --collect --unit killed -p StandardOutput=truncate:/root/log sh -c '{command}'")
    began = f"grep -qx '==> {step}' /root/log || ! systemctl -q is-active killed"
    until(lambda: machine.succeeds(began), seconds=SLOW_SECONDS)
    assert machine.succeeds(f"grep -qx '==> {step}' /root/log"), machine.run(
        "cat /root/log; journalctl -u killed -n 20"
    )
    machine.run("systemctl kill -s KILL killed || true")
    until(lambda: not machine.succeeds("systemctl -q is-active killed"))


def ask(machine: SystemdMachine, path: str, **body: object) -> Any:
    """Return what the API responds, asked over TLS with the first administrator's password."""
    return json.loads(machine.run(f"SSL_CERT_FILE={AUTHORITY} python3 /folder/client.py {path} '{json.dumps(body)}'"))


def hosts(machine: SystemdMachine) -> dict[str, str]:
    """Return {name: status} of the hosts."""
    return {row["name"]: row["status"] for row in ask(machine, "/hosts/")["results"]}


def runs_session(server: SystemdMachine, host: SystemdMachine, group: str = "lab") -> str:
    """Start a session from the server on the host, which has its image; return its id."""
    host.run("docker load -qi /folder/tiny.tar")
    ask(server, "/admin/images/", reference=TINY_IMAGE, environment="Tiny", version="1")
    amounts = {"cpu": 1, "memory": "128m", "shared_memory": "16m", "fgpu": "0"}
    (session,) = ask(server, "/sessions/", image=TINY_IMAGE, resource_group=group, **amounts)
    until(lambda: ask(server, f"/sessions/{session['id']}/")["status"] in {"RUNNING", "ERROR"}, seconds=SLOW_SECONDS)
    assert host.run(f"docker ps -q --filter label=gpuplatform.session={session['id']}")
    return str(session["id"])


def test_the_package_needs_no_compiler_git_or_npm(folder: Path, distribution: str) -> None:
    (package,) = folder.glob("*.deb")
    fields = subprocess.run(["dpkg-deb", "-f", package], capture_output=True, text=True, check=True).stdout
    assert f"\nDepends: python3 (>= {PYTHON[distribution]}), python3 (<< 3." in fields
    listing = subprocess.run(["dpkg-deb", "-c", package], capture_output=True, text=True, check=True).stdout
    names = {line.split()[5].removeprefix("./usr/lib/gpuplatform/") for line in listing.splitlines()}
    assert {"manage.py", ".venv/bin/python", "fgpu/build/libfgpu.so", "node_modules/", "client/build/wheels/"} <= names
    assert not [
        name
        for name in names
        if "ziglang" in name or ("/tests/" in name and not name.startswith((".venv", "node_modules")))
    ]
    assert not [line for line in listing.splitlines() if line.split()[1] != "root/root"]


def test_a_plan_changes_nothing(server: SystemdMachine) -> None:
    before = server.run(STATE)
    assert "1. packages: done already: PostgreSQL" in server.run(f"{WEB} --plan")
    assert server.run(STATE) == before


def test_each_step_goes_on_after_any_line(server: SystemdMachine) -> None:
    before = server.run(STATE)
    output = server.run("cd /usr/lib/gpuplatform; PYTHONPATH=. .venv/bin/python -B /folder/interrupted.py")
    assert len(re.findall("INTERRUPTED", output)) == 12
    server.run(f"{WEB} --uninstall --purge")
    assert server.run(STATE) == before


def test_an_installation_that_is_killed_goes_on(server: SystemdMachine) -> None:
    killed(server, WEB, "tables")
    killed(server, WEB, "services")
    server.run(WEB)
    again = server.run(WEB)
    assert again.count(": done already") == 10
    assert hosts(server)


@pytest.fixture(scope="module")
def ansible(folder: Path, distribution: str) -> str:
    """The command that has Ansible play the role on the machine itself, with what its module of apt needs."""
    made_for = ["--python-version", PYTHON[distribution], "--only-binary", ":all:"]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder / "ansible"), *made_for, ANSIBLE]
    subprocess.run(pip, check=True)
    environment = "PYTHONPATH=/folder/ansible ANSIBLE_ROLES_PATH=/folder/roles LC_ALL=C.UTF-8"
    play = "-m ansible playbook -i localhost, -e ansible_python_interpreter=/usr/bin/python3 /folder/site.yml"
    return f"apt-get -qy install --no-install-recommends python3-apt; {environment} python3 {play}"


def test_ansible_finds_nothing_left_to_change(server: SystemdMachine, ansible: str) -> None:
    play = f"{ansible} -e gpuplatform_role=web"
    server.run(play)  # has the package in its place
    assert "changed=0" in server.run(play)


def test_services_are_sandboxed(server: SystemdMachine) -> None:
    for unit in ("web", "appproxy", "scheduler", "beat", "images", "ssh"):
        overall = server.run(f"systemd-analyze security gpuplatform-{unit} --no-pager | tail -n 1")
        assert float(re.findall(r"\d+\.\d", overall)[0]) <= 3.0, overall


def test_a_host_joins_by_ansible_and_by_the_command(
    server: SystemdMachine, folder: Path, network: str, distribution: str, ansible: str
) -> None:
    own, bits = server.run("ip -4 -o address show eth0 | sed 's/.* inet \\([^ ]*\\).*/\\1/'").strip().split("/")
    server.run(f"{WEB} --hosts {ipaddress.ip_network(f'{own}/{bits}', strict=False)}")
    server.run("systemctl restart gpuplatform.target")
    until(lambda: server.succeeds(f"{WEB} --step answer"))
    invited = server.run(f"{MANAGE} add_host gpu7 --group lab --create-group")
    token = re.findall(r"--join \S+ (\S+)", invited)[0]
    with fresh_machine(folder, network, IMAGES[distribution]) as host:
        add_package(host)
        host.run(f"echo '{own} gpu.example.org' >>/etc/hosts")
        host.run(f"cat >/root/ca.crt <<'END'\n{server.run(f'cat {AUTHORITY}')}\nEND")
        host.run("echo export SSL_CERT_FILE=/root/ca.crt >/root/trust")
        values = f"-e gpuplatform_role=host -e gpuplatform_token={token} -e gpuplatform_options='--without=images'"
        assert "changed=5" in host.run(f". /root/trust; {ansible} {values}")  # the package's file and four steps
        assert "changed=0" in host.run(f". /root/trust; {ansible} {values}")
        install = f". /root/trust; {MANAGE} install host --join https://gpu.example.org {token}"
        until(lambda: hosts(server).get("gpu7") == "READY", seconds=SLOW_SECONDS)
        runs_session(server, host)
        before_again = host.run(f"{install} --without images")
        assert before_again.count(": done already") == 4
        host.run(f"mkdir -p {DROP_IN} && touch {DROP_IN}/override.conf")
        host.run(f"{MANAGE} install host --uninstall --purge")
        assert host.run(
            "docker ps -aq; docker images -q gpuplatform/*; find /etc/systemd -path '*gpuplatform*' -type f"
        ) == (f"{DROP_IN}/override.conf\n")
        host.run("apt-get -qy purge gpuplatform")
        assert not host.succeeds(
            "ls -d /etc/gpuplatform /var/lib/gpuplatform /usr/lib/gpuplatform 2>/dev/null | grep ."
        )


def test_a_purge_leaves_nothing(server: SystemdMachine) -> None:
    server.run(f"{MANAGE} install web --uninstall --purge")
    server.run("apt-get -qy purge gpuplatform")
    state = server.run(STATE)
    assert "gpuplatform" not in state, re.findall(".*gpuplatform.*", state)
    assert server.run("redis-cli ping") == "PONG\n"
