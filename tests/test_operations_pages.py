"""Commands of the pages on operation, given as they stand on machines that systemd runs, installed by the package."""

import io
import json
import re
import shlex
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import docker
import pytest

from tests.containers import ENGINE_URL
from tests.deb_package import package_folder
from tests.page_commands import PageReader, commands_of, example_of
from tests.systemd_machine import SystemdMachine, closed_network, fresh_machine
from tests.test_nginx_reverse_proxy import write_certificate
from tests.tiny_image import TINY_IMAGE, ensure_tiny_image
from tests.wait import until

pytestmark = [pytest.mark.docker, pytest.mark.long(minutes=15)]

PAGES: Final = ("backup", "operations", "scaling")
ADDRESS: Final = "gpu.example.org"
ADMIN: Final = "you@example.org"
SETTINGS: Final = "/etc/gpuplatform/gpuplatform.env"
AUTHORITY: Final = "/var/lib/caddy/.local/share/caddy/pki/authorities/local/root.crt"
CERTIFICATE: Final = "/etc/ssl/gpu.pem"
FOLDERS: Final = "/var/lib/gpuplatform/folders"
START_SECONDS: Final = 300.0
LAUNCH: Final = {"resource_group": "default", "image": TINY_IMAGE, "cpu": 1, "memory": "1GiB", "fgpu": "0"}
ENDED: Final = {"CANCELLED", "TERMINATED", "ERROR"}
FROM_CLONE: Final = "for clones of the repository; the tests run on what it starts"
NOT_HERE: Final = {  # commands that the pages name, and no test here gives
    "make up": FROM_CLONE,
    "make bench-failover": "bench/",
    "make load": "bench/",
    "make bench-growth": "bench/, by `make bench-smoke`",
    "make demo-cluster": "bench/, by `make bench-smoke`",
    "manage.py appproxy": "a service here",
    "manage.py sshserver": "a service here",
    "journalctl -u gpuplatform-web -f": "follows without end",
    "promtool test rules deploy/prometheus-alerts.test.yml": "gpuplatform/tests/test_metrics.py",
    "gpuplatform deployments hosts chat models.example.org": "client/gpuplatform_client/tests",
}
# Signs in over TLS once, and prints what the API says, or the first message of a websocket.
CLIENT: Final = """
import json, pathlib, sys, time, urllib.error, urllib.request
from websockets.sync.client import connect
method, path, *body = sys.argv[1:]
kept = pathlib.Path("/root/token")
def ask(method, path, body="", token=""):
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Token {token}"} if token else {})
    url = f"https://gpu.example.org/api/v1{path}"
    request = urllib.request.Request(url, body.encode() or None, headers, method=method)
    while True:
        try:
            return urllib.request.urlopen(request).read().decode() or "null"
        except urllib.error.HTTPError as error:
            if error.code != 503: # which asks to come again, as under the load of other tests
                sys.exit(f"{error.code}: {error.read().decode()}")
            time.sleep(1)
if not kept.exists():
    login = {"email": "you@example.org", "password": pathlib.Path("/root/password").read_text().strip()}
    kept.write_text(json.loads(ask("POST", "/auth/token/", json.dumps(login)))["token"])
token = kept.read_text()
if method == "SOCKET":
    with connect(f"wss://gpu.example.org{path}", additional_headers={"Authorization": f"Token {token}"}) as socket:
        print(json.dumps(socket.recv(timeout=60)))
else:
    print(ask(method, path, *body, token=token))
"""


def ask(machine: SystemdMachine, method: str, path: str, body: object = None) -> Any:
    """Send a request over TLS as the first administrator, and return its response."""
    words = [method, path, *([json.dumps(body)] if body is not None else [])]
    machine.run(f"cat {AUTHORITY} {CERTIFICATE} >/root/ca.crt 2>/dev/null || true")  # Caddy's, nginx'
    command = "SSL_CERT_FILE=/root/ca.crt /usr/lib/gpuplatform/.venv/bin/python /usr/local/share/client.py"
    return json.loads(machine.run(f"{command} {shlex.join(words)}"))


def serves(machine: SystemdMachine) -> bool:
    """Return whether all works: the pages respond, and scheduler, beat and a host have shown signs of life."""
    return machine.succeeds(
        "python3 -c \"import urllib.request as ask; ask.urlopen('http://127.0.0.1:8000/readyz', timeout=60)\""
    )


def own_address(machine: SystemdMachine) -> str:
    return machine.run("ip -4 -o address show eth0").split()[3].partition("/")[0]


@pytest.fixture(scope="module")
def reader(request: pytest.FixtureRequest) -> Iterator[PageReader]:
    """Somebody who follows the pages; what each block took is said at the end."""
    made = PageReader()
    yield made
    for place, lines, seconds in made.taken:
        request.config.get_terminal_writer().line(f"{seconds:7.1f} s for {lines:2} lines of {place}")


class Machines:
    """Fresh machines on one network, with the package in root's home."""

    def __init__(self, running: ExitStack, folder: Path, network: str) -> None:
        self._running = running
        self._folder = folder
        self._network = network

    def add(self) -> SystemdMachine:
        machine = self._running.enter_context(fresh_machine(self._folder, self._network))
        until(lambda: machine.succeeds("systemctl is-system-running --wait"))
        machine.run(f"""
            ip route del default # which leads nowhere, after a while
            echo nameserver 127.0.0.1 >/etc/resolv.conf
            printf 'APT::Get::Assume-Yes "true";\\nAPT::Install-Recommends "false";\\n' >/etc/apt/apt.conf.d/50test
            cp /folder/*.deb /root
            echo '127.0.0.1 {ADDRESS} apps.{ADDRESS}' >>/etc/hosts
        """)
        machine.run(f"cat >/usr/local/share/client.py <<'END'\n{CLIENT}\nEND")
        return machine


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with ExitStack() as running:
        yield Machines(running, package_folder(), running.enter_context(closed_network()))


@pytest.fixture(scope="module")
def server(machines: Machines, reader: PageReader) -> SystemdMachine:
    """The installed server with a folder, a file in it, and a session that has ended."""
    machine = machines.add()
    reader.do(machine, "install", "One machine", 0)
    machine.run("cp /etc/gpuplatform/administrator /root/password")
    until(lambda: serves(machine), seconds=START_SECONDS)
    folder = ask(machine, "POST", "/folders/", {"name": "results"})["id"]
    machine.run(f"cd {FOLDERS}/*/{folder}/files; echo kept >note.txt")
    add_tiny_image(machine)
    ended_session(machine)
    return machine


def add_tiny_image(machine: SystemdMachine) -> None:
    ensure_tiny_image(ENGINE_URL)
    with closing(docker.DockerClient(ENGINE_URL)) as engine:
        image = b"".join(engine.images.get(TINY_IMAGE).save(named=True))
    archive, member = io.BytesIO(), tarfile.TarInfo("tiny.tar")
    member.size = len(image)
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(member, io.BytesIO(image))
    machine.unpack(archive.getvalue(), "/root")
    machine.run("docker load --input /root/tiny.tar")
    machine.run(f"gpuplatform-manage images add {TINY_IMAGE} --environment Tiny --version 1 --no-scan")


def ended_session(machine: SystemdMachine) -> str:
    """Return the id of a session that has ended. Where the machine's engine lacks CPU quotas, it cannot have run."""
    path = f"/sessions/{ask(machine, 'POST', '/sessions/', LAUNCH)[0]['id']}/"
    ask(machine, "POST", f"{path}terminate/", {})
    until(lambda: ask(machine, "GET", path)["status"] in ENDED, seconds=START_SECONDS)
    return path.split("/")[2]


def assert_all_is_there(machine: SystemdMachine) -> None:
    until(lambda: serves(machine), seconds=START_SECONDS)
    folder = next(row["id"] for row in ask(machine, "GET", "/folders/")["results"] if row["name"] == "results")
    assert ask(machine, "GET", f"/folders/{folder}/text/?path=note.txt")["text"] == "kept\n"
    sessions = ask(machine, "GET", "/sessions/")["results"]
    assert sessions
    assert {row["status"] for row in sessions} <= ENDED


def test_a_backup_is_restored_on_another_machine(
    machines: Machines, server: SystemdMachine, reader: PageReader
) -> None:
    backup = reader.do(server, "backup", "Back up").splitlines()[-1]
    other = machines.add()
    other.unpack(server.archive(backup), "/root")
    other.run(f"echo '{server.run('cat /root/password').strip()}' >/root/password")
    reader.do(other, "backup", "On another machine", 0, {"gpuplatform-TIME.tar": Path(backup).name})
    reader.do(other, "backup", "On another machine", 1)
    other.unpack(server.archive(FOLDERS), "/var/lib/gpuplatform")
    reader.do(other, "backup", "On another machine", 2)
    assert_all_is_there(other)


def test_a_backup_replaces_what_came_after_it(server: SystemdMachine, reader: PageReader) -> None:
    backup = reader.do(server, "backup", "Back up").splitlines()[-1]
    wanted, unwanted = (ask(server, "POST", "/folders/", {"name": name})["id"] for name in ("wanted", "unwanted"))
    reader.name(server, "backup", "systemctl stop gpuplatform-host")
    reader.do(server, "backup", "On the same machine", 0, {"gpuplatform-TIME.tar": Path(backup).name})
    values = {"b2kx57o6gazovsyq": wanted, "q635gazovsyxb2kw": unwanted, "ann@example.org": ADMIN, "data": "wanted"}
    output = reader.do(server, "backup", "What came after the backup", 0, values)
    assert "2 directories that no folder belongs to" in output
    assert_all_is_there(server)
    assert {row["name"] for row in ask(server, "GET", "/folders/")["results"]} == {"results", "wanted"}
    assert not server.succeeds(f"ls -d {FOLDERS}/*/{unwanted}")


def test_secret_key_is_changed(server: SystemdMachine, reader: PageReader) -> None:
    registry = {"name": "lab", "address": "registry.example.org", "username": "pulls", "password": "only-for-tests"}
    ask(server, "POST", "/admin/registries/", registry)
    old = server.run(f"grep ^SECRET_KEY= {SETTINGS}")
    reader.do(server, "backup", "SECRET_KEY", 0)
    assert "1 passwords of registries" in reader.do(server, "backup", "SECRET_KEY", 1)
    (now,) = server.run(f"grep ^SECRET_KEY {SETTINGS}").splitlines()
    assert now not in old
    assert_all_is_there(server)


def test_passwords_of_the_servers_are_changed(server: SystemdMachine, reader: PageReader) -> None:
    old = dict(line.split("=", 1) for line in server.run(f"grep _URL= {SETTINGS}").splitlines())
    reader.do(server, "backup", "Passwords of PostgreSQL and Redis")
    assert_all_is_there(server)
    assert not server.succeeds(f"psql '{old['DATABASE_URL']}' -c ''")
    assert "WRONGPASS" in server.run(f"redis-cli -u '{old['REDIS_URL']}' ping 2>&1")


def test_services_are_looked_after(server: SystemdMachine, reader: PageReader) -> None:
    assert "active (running)" in reader.name(server, "operations", "systemctl status gpuplatform-web")
    assert "gpuplatform-beat" in reader.name(server, "operations", "systemctl list-dependencies gpuplatform.target")
    reader.name(server, "operations", "systemctl restart gpuplatform-web")
    until(lambda: serves(server), seconds=START_SECONDS)
    reader.name(server, "operations", "systemctl reload gpuplatform-web")
    assert "systemd" in reader.name(server, "operations", "journalctl -u 'gpuplatform-*' --since today")
    assert re.search("OK +database", reader.name(server, "operations", "gpuplatform-manage doctor"))


def test_the_web_server_may_act_where_polkit_says_so(server: SystemdMachine, reader: PageReader) -> None:
    assert not server.succeeds("gpuplatform-manage services restart ssh")
    reader.do(server, "operations", "Services", 1)
    output = reader.do(server, "operations", "Services", 0, {"NAME": "ssh"})
    assert re.search(r"web +running", output)
    assert re.search("ssh|SSH", output.partition("web ")[2])
    until(lambda: serves(server), seconds=START_SECONDS)


def test_the_socket_belongs_to_the_services(server: SystemdMachine, reader: PageReader) -> None:
    reader.name(server, "operations", "systemctl enable gpuplatform-web.socket")
    reader.name(server, "operations", "systemctl restart gpuplatform.target")
    until(lambda: serves(server), seconds=START_SECONDS)
    assert server.succeeds("systemctl is-active gpuplatform-web.socket")
    reader.name(server, "operations", "systemctl stop gpuplatform-web gpuplatform-web.socket")
    assert not server.succeeds("systemctl is-active gpuplatform-web")
    server.run("systemctl disable gpuplatform-web.socket; systemctl start gpuplatform.target")
    assert_all_is_there(server)


def test_logs_say_what_happened_to_a_session(server: SystemdMachine, reader: PageReader) -> None:
    server.run(f"printf 'COMPUTE_LOG_FORMAT=json\\nCOMPUTE_LOG_REQUESTS=true\\n' >>{SETTINGS}")
    server.run("systemctl restart gpuplatform.target")
    until(lambda: serves(server), seconds=START_SECONDS)
    session = ended_session(server)
    lines = reader.do(server, "operations", "Logs", 0, {"ID": session}).splitlines()
    assert {json.loads(line)["session_id"] for line in lines} == {session}


def test_the_administration_is_used_by_the_api(server: SystemdMachine, reader: PageReader) -> None:
    server.run("apt-get -q install curl")
    prelude = f"url=https://{ADDRESS}/api/v1 token=$(cat /root/token)\nexport CURL_CA_BUNDLE={AUTHORITY}\ncurl"
    output = reader.do(server, "operations", "The administration by the API", 0, {"curl": prelude})
    assert json.loads(output)["name"] == "half"


def test_caddy_serves_names_of_deployments(server: SystemdMachine, reader: PageReader) -> None:
    example = example_of("operations", "caddyfile").replace("{\n", "{\n    tls internal\n", 1)
    server.run(f"cat >>/etc/caddy/Caddyfile <<'END'\n{example}END")
    reader.name(server, "operations", "systemctl reload caddy")
    there = "--resolve models.example.org:443:127.0.0.1 https://models.example.org/"
    assert server.run(f"curl -sko /dev/null -w '%{{http_code}}' {there}").startswith("4"), "no deployment has the name"
    assert_all_is_there(server)


def test_nginx_takes_the_place_of_caddy(server: SystemdMachine, reader: PageReader, tmp_path: Path) -> None:
    write_certificate(tmp_path, ADDRESS, f"*.apps.{ADDRESS}")
    for name in ("gpu.pem", "gpu.key"):
        server.run(f"cat >/etc/ssl/{name} <<'END'\n{(tmp_path / name).read_text()}END")
    reader.do(server, "operations", "nginx in place of Caddy")
    assert server.succeeds("systemctl is-active nginx && ! systemctl is-active caddy")
    assert ask(server, "GET", "/folders/")["results"]
    assert ask(server, "SOCKET", "/ws/sessions/")
    assert server.run(f"curl -so /dev/null -w '%{{redirect_url}}' http://{ADDRESS}/a") == f"https://{ADDRESS}/a"
    server.run("cp /etc/ssl/gpu.pem /etc/ssl/models.pem; cp /etc/ssl/gpu.key /etc/ssl/models.key")
    example = example_of("operations", "nginx")
    server.run(f"cat >/etc/nginx/conf.d/models.conf <<'END'\n{example}END")
    reader.name(server, "operations", "nginx -t")
    reader.name(server, "operations", "systemctl reload nginx")
    assert ask(server, "GET", "/folders/")["results"]
    server.run("systemctl disable --now nginx; systemctl enable --now caddy")  # as the tests that follow expect


def test_postgresql_and_redis_fail_over(machines: Machines, server: SystemdMachine, reader: PageReader) -> None:
    own = own_address(server)
    network = f"{own}/16"
    reader.do(server, "install", "A further host", 0, {"10.0.0.0/24": network})
    second, third = machines.add(), machines.add()
    names = f"{own} db1\n{own_address(second)} db2\n{own_address(third)} web1"
    for machine in (server, second, third):
        machine.run(f"cat >>/etc/hosts <<'END'\n{names}\nEND")
    secret = re.findall(r"REDIS_URL=redis://:(.*)@", server.run(f"cat {SETTINGS}"))[0]
    values = {
        "PASSWORD1": "only-for-tests",
        "PASSWORD2": secret,
        "10.0.0.2/32": f"{own_address(second)}/32",
        "10.0.0.0/24": network,
    }
    for number, machine in enumerate((server, second)):
        reader.do(machine, "scaling", "PostgreSQL", number, values)
    until(lambda: "sync" in reader.do(server, "scaling", "PostgreSQL", 2, values).split())
    reader.do(server, "scaling", "PostgreSQL", 3, values)
    for number, machine in enumerate((second, server)):
        reader.do(machine, "scaling", "Redis", number, values)
    for machine in (server, second, third):
        reader.do(machine, "scaling", "Redis", 2, values)
    reader.do(server, "scaling", "Redis", 3, values)
    assert_all_is_there(server)
    server.run("systemctl kill -s KILL postgresql@15-main redis-server; systemctl stop postgresql@15-main redis-server")
    reader.do(second, "scaling", "PostgreSQL", 4, values)
    until(lambda: serves(server), seconds=START_SECONDS)
    assert "db2" in reader.name(server, "scaling", "gpuplatform-manage doctor")
    ended_session(server)


def test_each_command_is_given_or_has_a_reason(reader: PageReader) -> None:
    named = {command.text for page in PAGES for command in commands_of(page)}
    assert named - {command.text for command in reader.done} == NOT_HERE.keys()
