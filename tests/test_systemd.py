"""The units under systemd, installed by the steps of `manage.py install`: restarts refuse nobody, and kill nothing."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from gpuplatform.bootstrap.production.steps import PRELUDE, steps_of
from tests.fleet import START_SECONDS
from tests.systemd_machine import ROOT, SystemdMachine, systemd_machine
from tests.wait import until

pytestmark = [pytest.mark.docker, pytest.mark.long(4)]

# Ids of systemd's messages, from sd-messages.h.
STOPPING: Final = "de5b426a63be47a7b6ac3eaac82e2f6f"
STOPPED: Final = "9d1aaa27d60140bd96365438aad20286"
# There is no engine for the host worker; the gateway is that of a further host, the socket is optional.
NAMES: Final = ("web", "appproxy", "scheduler", "beat", "images", "ssh", "gateway")
UNITS: Final = " ".join(["gpuplatform-web.socket", *(f"gpuplatform-{name}" for name in NAMES)])
STEPS: Final = {"user", "settings", "database", "redis", "tables", "services"}
SERVICES: Final = {f"gpuplatform-{name}.service" for name in NAMES}
CODE: Final = """
mkdir /opt/gpuplatform
cd /opt/gpuplatform
tar -C /src --exclude=./.git --exclude=./.venv --exclude=./node_modules --exclude=./.mypy_cache --exclude=./var \
    --exclude=./.env -c . | tar --no-same-owner -x
python3 -m venv --without-pip .venv
echo /packages >"$(echo .venv/lib/python3*/site-packages)/packages.pth"
python3 gpuplatform/bootstrap/env_file.py
echo COMPUTE_GATEWAY_ADDRESS=127.0.0.1:8010 >>.env
"""
# Whether the services respond.
SERVING: Final = """
import socket, urllib.request
for port in (8001, 8010, 8022):
    socket.create_connection(("127.0.0.1", port)).close()
urllib.request.urlopen("http://127.0.0.1:8000/healthz", timeout=60)
"""
# Requests on new connections until it gets a line; then it writes how they ended.
CLIENT: Final = """
import collections, http.client, pathlib, threading, time
ended, over = collections.Counter(), pathlib.Path("/root/over")
def ask():
    while not over.exists():
        connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=120)
        try:
            connection.request("GET", "/healthz", headers={"Connection": "close"})
            ended[str(connection.getresponse().status)] += 1
        except OSError as error:
            ended[type(error).__name__] += 1
        finally:
            connection.close()
        time.sleep(0.02)
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*ended)
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[SystemdMachine]:
    """A machine on which all services but the host worker run."""
    mounts = _cgroup_mounts()
    with systemd_machine() as machine:
        if machine.run("python3 -c 'import sys; print(*sys.version_info[:2])'").split() != [
            str(number) for number in sys.version_info[:2]
        ]:
            pytest.skip("the packages of this Python are not for that of Debian 12")
        until(lambda: machine.succeeds("systemctl is-active postgresql@15-main redis-server"))
        machine.run(CODE)
        for step in steps_of("web"):
            if step.name in STEPS:
                machine.run(
                    f"cd /opt/gpuplatform\nADDRESS=gpu.example.org HOSTS= UNITS='{UNITS}'\n{PRELUDE}\n{step.do}"
                )
        machine.run(f"cat >/root/client.py <<'END'\n{CLIENT}\nEND\ncat >/root/serving.py <<'END'\n{SERVING}\nEND")
        until(lambda: machine.succeeds("python3 /root/serving.py"), seconds=START_SECONDS)
        yield machine
    assert _cgroup_mounts() == mounts


def _cgroup_mounts() -> list[str]:
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if "cgroup" in line]
    return [*mounts, *sorted(path.name for path in Path("/sys/fs/cgroup").iterdir())]


@dataclass
class Restart:
    """What a restart was like."""

    requests: set[str]  # how those that came meanwhile ended
    stop_seconds: dict[str, float]  # by unit
    messages: str  # of systemd


def restart(machine: SystemdMachine, unit: str) -> Restart:
    """Restart the unit under requests, until all services respond again."""
    since = machine.run("date +%s").strip()
    machine.run("rm -f /root/over; nohup python3 /root/client.py >/root/ended 2>&1 &")
    machine.run(f"systemctl restart {unit}")
    until(lambda: machine.succeeds("python3 /root/serving.py"), seconds=START_SECONDS)
    machine.run("touch /root/over")
    until(lambda: machine.succeeds("test -s /root/ended"), seconds=START_SECONDS)
    journal = machine.run(f"journalctl _PID=1 --since=@{since} --no-pager --output=json").splitlines()
    began: dict[str, float] = {}
    took: dict[str, float] = {}
    for message in map(json.loads, journal):
        name, at = message.get("UNIT", ""), int(message["__REALTIME_TIMESTAMP"]) / 1e6
        if message.get("MESSAGE_ID") == STOPPING:
            began[name] = at
        elif message.get("MESSAGE_ID") == STOPPED and name in SERVICES & began.keys():
            took[name] = at - began[name]
    text = "\n".join(json.loads(line)["MESSAGE"] for line in journal)
    return Restart(set(machine.run("cat /root/ended").split()), took, text)


@pytest.mark.parametrize("unit", ["gpuplatform-web", "gpuplatform.target"])
def test_a_restart_kills_nothing_and_refuses_nobody(machine: SystemdMachine, unit: str) -> None:
    common = (ROOT / "deploy/systemd/gpuplatform-.service.d/10-common.conf").read_text()
    limit = float(re.findall(r"^TimeoutStopSec=(\d+)$", common, re.MULTILINE)[0])
    found = restart(machine, unit)
    assert set(found.stop_seconds) == (SERVICES if unit.endswith(".target") else {f"{unit}.service"})
    assert max(found.stop_seconds.values()) < limit, found.stop_seconds
    assert "kill" not in found.messages.lower(), found.messages
    if unit == "gpuplatform-web":  # the target stops its socket too
        assert "".join(found.requests).isdecimal(), found.requests  # none ended by an error of the connection
