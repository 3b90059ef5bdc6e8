"""`deploy/` runs exactly the platform's processes, by systemd and compose; the pages on operation name what exists."""

import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from django.core.management import get_commands, load_command_class

from hostworker.privileged.helper_container import CAPABILITIES
from operations.machine.address import Address
from operations.supervisor.processes import commands
from tests.page_commands import commands_of
from tests.test_settings_docs import settings_defaults

ROOT: Final = Path(__file__).resolve().parent.parent
SYSTEMD: Final = ROOT / "deploy/systemd"
PYTHON: Final = "/opt/gpuplatform/.venv/bin/python"
VAR_DIR: Final = Path("/var/lib/gpuplatform")
BESIDE: Final = {  # what `make up` does not run: the apps' part of `web`, and what hosts apart from the web server have
    "appproxy": ["manage.py", "appproxy"],
    "gateway": ["manage.py", "gateway"],
}
UNITS: Final = sorted(path.stem for path in SYSTEMD.glob("*.service"))


def processes() -> dict[str, list[str]]:
    """Return {role: arguments of Python} of every process; `web` listens where COMPUTE_HTTP_ADDRESS says."""
    found = commands(Address("127.0.0.1", 8000), VAR_DIR, {}, has_ssh=True)
    arguments = {command.name: list(command.arguments) for command in found}
    assert all(words.pop(0) == sys.executable for words in arguments.values())
    del arguments["web"][-2:]
    return arguments | BESIDE


def unit(name: str) -> dict[str, list[str]]:
    """Return {directive: values} of a unit with its drop-in files, merged as systemd.unit(5) says."""
    drop_ins = {
        path.name: path for folder in ("gpuplatform-", name) for path in (SYSTEMD / f"{folder}.service.d").glob("*")
    }
    values = defaultdict(list)
    for path in (SYSTEMD / f"{name}.service", *(drop_ins[key] for key in sorted(drop_ins))):
        for line in path.read_text().splitlines():
            if line and line[0] not in "#[":
                key, _, value = line.partition("=")
                values[key].append(value)
    return values


def arguments_of(unit_name: str) -> list[str]:
    program, *arguments = shlex.split(unit(unit_name)["ExecStart"][-1].replace("%%", "%"))
    assert program == PYTHON
    return arguments


def assert_command_exists(arguments: Sequence[str]) -> None:
    if arguments[0] == "manage.py":
        parser = load_command_class(get_commands()[arguments[1]], arguments[1]).create_parser("manage.py", arguments[1])
        parser.parse_args(arguments[2:])


def test_units_run_exactly_the_platforms_processes() -> None:
    assert {name.removeprefix("gpuplatform-"): arguments_of(name) for name in UNITS} == processes()
    for arguments in processes().values():
        assert_command_exists(arguments)


@pytest.mark.parametrize("name", UNITS)
def test_units_belong_to_the_target_and_start_again(name: str) -> None:
    values = unit(name)
    assert values["PartOf"] == values["WantedBy"] == ["gpuplatform.target"]
    assert (values["Restart"], values["User"], values["NoNewPrivileges"]) == (["always"], ["gpuplatform"], ["yes"])
    assert (values["StartLimitIntervalSec"], values["WorkingDirectory"]) == (["0"], ["/opt/gpuplatform"])
    assert all(entry.partition("=")[0] in {*settings_defaults(), "PYTHONUNBUFFERED"} for entry in values["Environment"])


def test_all_but_the_host_worker_are_in_a_sandbox() -> None:
    assert {name for name in UNITS if unit(name)["ProtectSystem"] != ["full"]} == {"gpuplatform-host"}
    host = unit("gpuplatform-host")
    assert host["KillMode"] == ["process"], "a restart would end the arbiter, which outlives the worker"
    assert host["LimitNOFILE"] == ["65536"], "the arbiter has two for each process that uses a part of a GPU"
    hiding = {key for key in host if key.startswith(("Protect", "Private", "Restrict", "Capability"))}
    assert not hiding, "the helper enters the worker's mount namespace"


def compose() -> dict[str, dict[str, Any]]:
    services: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    return services


def test_compose_runs_the_processes_of_one_machine() -> None:
    services = compose()
    setup = services.pop("setup")
    assert_command_exists(setup["command"])
    expected = processes()
    del expected["gateway"]
    assert {name: service["command"] for name, service in services.items()} == expected
    assert all(service["depends_on"]["setup"] for service in services.values())


def test_compose_builds_its_image_once() -> None:
    assert [name for name, service in compose().items() if "build" in service] == ["setup"]
    assert {service["pull_policy"] for service in compose().values()} == {"never"}  # no registry has it


def test_compose_gives_the_engine_to_whom_needs_it() -> None:
    services = compose()
    has_engine = {
        name for name, service in services.items() if any("docker.sock" in path for path in service["volumes"])
    }
    assert has_engine == {"setup", "web", "images", "ssh", "host"}
    assert {name for name, service in services.items() if service["user"] != "1000:1000"} == {"host"}
    assert services["host"]["cap_add"] == list(CAPABILITIES), "what the worker's helper has"
    for service in services.values():
        assert set(service.get("environment", {})) <= {*settings_defaults(), "PYTHONWARNINGS"}
        assert not [
            path
            for path in service["volumes"]
            if re.search(rf":{VAR_DIR}$", path) and not path.startswith(f"{VAR_DIR}:")
        ]


def test_the_image_has_no_secrets_and_knows_its_settings() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split("\n")
    assert {"**/.env", "**/host.env", "var", ".git"} <= set(ignored)
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    assert set(re.findall(r"\b(COMPUTE_\w+)=", dockerfile)) <= set(settings_defaults())
    assert f"COMPUTE_VAR_DIR={VAR_DIR}" in dockerfile


def test_both_reverse_proxies_lead_to_web_and_apps() -> None:
    appproxy = load_command_class(get_commands()["appproxy"], "appproxy").create_parser("manage.py", "appproxy")
    addresses = {settings_defaults()["COMPUTE_HTTP_ADDRESS"], appproxy.get_default("address")}
    assert set(re.findall(r"server ([\d.:]+);", (ROOT / "deploy/nginx.conf").read_text())) == addresses
    assert set(re.findall(r"reverse_proxy ([\d.:]+)", (ROOT / "deploy/Caddyfile").read_text())) == addresses


def test_operations_name_units_commands_and_settings() -> None:
    pages = ("install", "operations", "upgrade", "scaling", "backup")
    text = "".join((ROOT / f"docs/{page}.md").read_text() for page in pages)
    assert set(re.findall(r"^\| `(gpuplatform-\w+)` \|", text, re.MULTILINE)) == set(UNITS)
    named = re.findall(r"(?:manage\.py|gpuplatform-manage) ([a-z_]+)", text)
    assert set(named) <= {*get_commands(), "join", "install"}  # the last two by manage.py itself
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^ +make ([a-z-]+)$", text, re.MULTILINE)) <= targets
    assert all((ROOT / path).exists() for path in re.findall(r"deploy/[\w./-]*\w", text) if path != "deploy/.env")


def test_a_secret_key_replaced_twice_leaves_both_old_ones(tmp_path: Path) -> None:
    (block, *_) = [each.text for each in commands_of("backup") if each.heading == "SECRET_KEY" and each.is_block]
    file = tmp_path / "gpuplatform.env"
    file.write_text("DEBUG=false\nSECRET_KEY=a/b&c\\d#$e\nREDIS_URL=\n")
    shell = block.replace("/etc/gpuplatform", str(tmp_path)).replace("systemctl", ": systemctl")
    found = [dict(line.split("=", 1) for line in file.read_text().splitlines())]
    for _ in range(2):
        subprocess.run(["sh", "-euc", shell], check=True)
        lines = file.read_text().splitlines()
        assert len(lines) == 4
        found.append(dict(line.split("=", 1) for line in lines))
    first, second, third = (each["SECRET_KEY"] for each in found)
    assert len({first, second, third}) == 3
    assert [each["SECRET_KEY_FALLBACKS"] for each in found[1:]] == [first, f"{second},{first}"]
