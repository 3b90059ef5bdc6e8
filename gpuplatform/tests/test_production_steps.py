"""The table of `manage.py install`: what is made of it is up to date, and the command line takes no hostile value."""

import io
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from gpuplatform.bootstrap.production import documents, install
from gpuplatform.bootstrap.production.steps import CODE, PRELUDE, UNITS, InstallStep, steps_of
from tests.test_settings_docs import settings_defaults

STEPS: Final = [pytest.param(step, id=f"{role}-{step.name}") for role in UNITS for step in steps_of(role)]
WEB: Final = ["web", "gpu.example.org", "--admin", "root@example.org"]


@pytest.mark.parametrize("name", documents.FILES)
def test_what_is_made_of_the_table_is_current(name: str) -> None:
    assert Path(CODE, name).read_text() == documents.FILES[name](), f"run {documents.MADE_BY}"


@pytest.mark.parametrize("step", STEPS)
def test_parts_of_a_step_are_shell(step: InstallStep) -> None:
    for part in (step.done, step.do, step.undo, step.purge):
        assert subprocess.run(["sh", "-nc", PRELUDE + part], check=False).returncode == 0


@pytest.mark.parametrize("step", STEPS)
def test_a_step_writes_settings_that_exist(step: InstallStep) -> None:
    written = set(re.findall(r'^(?:.* \|\|)? *echo "?([A-Z_]+)=', step.do, re.MULTILINE))
    assert written <= set(settings_defaults())


@pytest.mark.parametrize("role", UNITS)
def test_units_of_a_role_exist(role: str) -> None:
    assert all((CODE / f"deploy/systemd/gpuplatform-{name}.service").exists() for name in UNITS[role])
    assert len({step.name for step in steps_of(role)}) == len(steps_of(role))


@pytest.mark.parametrize(
    "arguments",
    [
        ["web"],
        ["web", "gpu.example.org"],
        ["host"],
        ["web", "$(reboot)", "--admin", "root@example.org"],
        ["web", "gpu.example.org\nx", "--admin", "root@example.org"],
        [*WEB, "--hosts", "10.0.0.0/24 trust"],
        [*WEB, "--hosts", "all"],
        [*WEB, "--certificate", "/etc/ssl/a b", "/etc/ssl/c"],
        [*WEB, "--certificate", "|e reboot", "/etc/ssl/c"],
        ["web", "gpu.example.org", "--admin", "-x"],
        ["host", "--join", "https://gpu.example.org/path", "token"],
        ["host", "--join", "gpu.example.org", "to ken"],
        [*WEB, "--purge"],
        [*WEB, "--step", "nothing"],
        [*WEB, "--without", "images"],
    ],
)
def test_values_of_no_use_are_refused(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        install.main([*arguments, "--plan"])
    assert "The plan" not in capfd.readouterr().out
    assert "for root on" not in str(ended.value)


def test_a_token_may_be_read_where_nobody_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments are seen by all users of the machine while packages are installed."""
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    arguments = ["host", "--join", "gpu.example.org", "-"]
    assert install.variables(install.parser().parse_args(arguments))["TOKEN"] == "secret"
    with pytest.raises(SystemExit):
        install.variables(install.parser().parse_args(arguments))
    assert install.variables(install.parser().parse_args([*arguments, "--step", "packages"]))["TOKEN"] == ""


def test_ansible_has_the_token_in_no_argument() -> None:
    found = [task for task in yaml.safe_load(documents.tasks()) if "gpuplatform_token" in str(task)]
    assert [task["no_log"] for task in found] == [True]
    assert "gpuplatform_token" not in found[0]["ansible.builtin.command"]["cmd"]


def test_an_address_may_be_given_as_url() -> None:
    options = install.parser().parse_args(["host", "--join", "https://gpu.example.org/", "abc"])
    assert install.variables(options)["ADDRESS"] == "gpu.example.org"
