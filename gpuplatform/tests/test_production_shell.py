"""Shell of the steps of `manage.py install`, run where /etc and /var/lib are folders of the test."""

import subprocess
from pathlib import Path

import pytest

from gpuplatform.bootstrap.production.steps import CODE, PRELUDE, UNITS, steps_of, units

FOLDERS = ("etc", "var/lib")
POSTRM = Path(CODE, "deploy/debian/postrm").read_text()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with what such a machine has: accounts, and the platform's folders."""
    for name in ("var/lib/gpuplatform", "etc/gpuplatform", "code", "bin"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("passwd", "group", "shadow", "gshadow", "login.defs", "nsswitch.conf"):
        if Path("/etc", name).exists():
            (tmp_path / "etc" / name).write_bytes(Path("/etc", name).read_bytes())
    (tmp_path / "code/.env").symlink_to("/etc/gpuplatform/gpuplatform.env")
    return tmp_path


def part(role: str, step: str, name: str) -> str:
    """Return a part of a step."""
    (found,) = (each for each in steps_of(role) if each.name == step)
    return PRELUDE + str(getattr(found, name))


def run(root: Path, shell: str, *, before: str = "", after: str = "", **variables: str) -> tuple[int, str]:
    """Run shell as a step is, in the folder of the code, between two others; return its exit status and all output."""
    mounts = "".join(f"mount --bind {root}/{name} /{name}; " for name in FOLDERS)
    around = f'{mounts}cd {root}/code; {before}\nsh -euc "$0" sh purge && code=0 || code=$?\n{after}\nexit $code'
    path = f"{root}/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-euc", around, shell],
        env={"PATH": path, "LC_ALL": "C.UTF-8", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def program(root: Path, name: str, shell: str = "") -> None:
    """Have a program there that does this, in place of one of a server."""
    (root / "bin" / name).write_text(f"#!/bin/sh\n{shell}\n")
    (root / "bin" / name).chmod(0o755)


@pytest.mark.parametrize("shell", [*(part(role, "user", "purge") for role in UNITS), POSTRM])
def test_a_purge_spares_mounts_and_what_runs(root: Path, shell: str) -> None:
    """A root that hosts share is mounted below the platform's folder; sessions have processes of the user's id."""
    folders = "/var/lib/gpuplatform/folders"
    before = f"""
        useradd --uid 54321 --user-group --home-dir /var/lib/gpuplatform gpuplatform
        mkdir {folders}
        mount -t tmpfs tmpfs {folders}
        touch {folders}/thesis /var/lib/gpuplatform/own
        setpriv --reuid 54321 --clear-groups sleep 60 &
    """
    code, output = run(root, shell, before=before, after=f"kill $!; ls {folders}; ! id gpuplatform 2>/dev/null")
    assert code == 0, output
    assert output.endswith("thesis\n")
    assert [each.name for each in (root / "var/lib/gpuplatform").iterdir()] == ["folders"]
    assert not (root / "etc/gpuplatform").exists()


def test_taking_back_goes_on_where_servers_are_gone(root: Path) -> None:
    (root / "etc/gpuplatform/gpuplatform.env").write_text("COMPUTE_HOSTS_REDIS_ADDRESS=10.0.0.1:6379\n")
    for name in ("redis/gpuplatform.conf", "caddy/Caddyfile.before"):
        (root / "etc" / name).parent.mkdir()
        (root / "etc" / name).touch()
    program(root, "systemctl", "echo Unit not found >&2; exit 5")
    program(root, "which", "exit 1")
    program(root, "runuser", "exit 1")
    for step in ("proxy", "hosts", "redis"):
        code, output = run(root, part("web", step, "undo"))
        assert code == 0, output
    assert not (root / "etc/redis/gpuplatform.conf").exists()
    assert (root / "etc/gpuplatform/gpuplatform.env").read_text() == ""


def test_taking_back_disables_units_of_any_role(root: Path) -> None:
    """As before the package is removed, where nobody says which role the machine has."""
    (root / "code/deploy").symlink_to(CODE / "deploy")
    names = {"gpuplatform.target", "gpuplatform-gateway.service", "gpuplatform-web.socket"}
    (root / "etc/systemd/system").mkdir(parents=True)
    for name in names:
        (root / "etc/systemd/system" / name).touch()
    program(root, "systemctl", f"echo $* >>{root}/log")
    code, output = run(root, part("web", "services", "undo"), UNITS=units("web"))
    assert code == 0, output
    log = (root / "log").read_text().splitlines()
    assert {line.split()[-1] for line in log if line.startswith("-q disable --now ")} == names
