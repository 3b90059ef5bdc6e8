"""Shell of the steps of `manage.py install`, run where /etc and /var/lib are folders of the test."""

import re
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
    (root / "etc/redis/gpuplatform.conf.new").touch()  # of an interruption
    program(root, "systemctl", "echo Unit not found >&2; exit 5")
    program(root, "which", "exit 1")
    program(root, "runuser", "exit 1")
    for step in ("proxy", "hosts", "redis"):
        code, output = run(root, part("web", step, "undo"))
        assert code == 0, output
    assert not list((root / "etc/redis").iterdir())
    assert (root / "etc/gpuplatform/gpuplatform.env").read_text() == ""


def test_taking_back_disables_units_of_any_role(root: Path) -> None:
    """As before the package is removed, where nobody says which role it has. The administrator's drop-ins stay."""
    (root / "code/deploy").symlink_to(CODE / "deploy")
    names = {"gpuplatform.target", "gpuplatform-gateway.service", "gpuplatform-web.socket"}
    (root / "etc/systemd/system").mkdir(parents=True)
    for name in names:
        (root / "etc/systemd/system" / name).touch()
    program(root, "systemctl", f"echo $* >>{root}/log")
    own, ours = ("etc/systemd/system/gpuplatform-web.service.d", "etc/systemd/system/gpuplatform-host.service.d")
    for folder, file in ((own, "override.conf"), (ours, "20-sandbox.conf")):
        (root / folder).mkdir()
        (root / folder / file).touch()
    code, output = run(root, part("web", "services", "undo"), UNITS=units("web"))
    assert code == 0, output
    assert [(root / own / "override.conf").exists(), (root / ours).exists()] == [True, False]
    log = (root / "log").read_text().splitlines()
    assert {line.split()[-1] for line in log if line.startswith("-q disable --now ")} == names


def test_settings_that_were_there_are_kept_and_completed(root: Path) -> None:
    """As those of a server elsewhere that were written first, or of a machine that was a host."""
    file = root / "etc/gpuplatform/gpuplatform.env"
    file.write_text("DATABASE_URL=postgresql://u:p@db:5432/lab\nEMAIL_HOST=mail")  # no line ends it
    program(root, "chgrp")
    (root / "code/.venv/bin").mkdir(parents=True)
    (root / "code/.venv/bin/python").symlink_to("/usr/bin/python3")
    code, output = run(root, part("web", "settings", "do"), ADDRESS="gpu.example.org")
    assert code == 0, output
    pairs = [line.split("=", 1) for line in file.read_text().splitlines()]
    found = dict(pairs)
    assert len(found) == len(pairs)
    assert (found["EMAIL_HOST"], found["DATABASE_URL"]) == ("mail", "postgresql://u:p@db:5432/lab")
    assert len(found["SECRET_KEY"]) == 96
    assert found["REDIS_URL"].startswith("redis://:")
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_second_network_of_hosts_is_admitted_too(root: Path) -> None:
    rules, conf = root / "etc/postgresql/15/main/pg_hba.conf", root / "etc/redis/gpuplatform.conf"
    for file in (rules, conf):
        file.parent.mkdir(parents=True)
        file.touch()
    for name in ("systemctl", "runuser", "chgrp"):
        program(root, name)
    program(root, "ip", "echo $3 via x src $3 uid 0")
    settings = root / "etc/gpuplatform/gpuplatform.env"
    settings.write_text("REDIS_URL=redis://:secret@127.0.0.1:6379/0\n")
    for network in ("10.0.0.0/24", "fd00::/64"):
        assert run(root, part("web", "hosts", "done"), HOSTS=network)[0] != 0
        for _ in range(2):
            assert run(root, part("web", "hosts", "do"), HOSTS=network)[0] == 0
        assert run(root, part("web", "hosts", "done"), HOSTS=network)[0] == 0
    assert rules.read_text().count("\n") == 2
    assert settings.read_text().count("=10.0.0.0:") == settings.read_text().count("ADDRESS=") == 2
    program(root, "redis-cli", "echo NOAUTH")
    (root / "etc/redis/redis.conf").touch()
    assert run(root, part("web", "redis", "do"))[0] == 0  # as after the server was down
    assert conf.read_text() == "requirepass secret\nbind * -::*\n"
    assert conf.stat().st_mode & 0o777 == 0o640
    settings.unlink()
    assert run(root, part("web", "hosts", "do"), HOSTS="fd00::/64")[0] == 0
    assert "ADDRESS=[fd00::]:6379" in settings.read_text()


@pytest.mark.parametrize("own", ["gpu.example.org, www.example.org {\n}\n", "gpu.example.org {\n\tlog\n}\n"])
def test_a_caddyfile_is_written_once(root: Path, own: str) -> None:
    """Where Caddy was down, the administrator's file is not replaced."""
    (root / "code/deploy").symlink_to(CODE / "deploy")
    file = root / "etc/caddy/Caddyfile"
    file.parent.mkdir()
    file.write_text("of the distribution")
    for name in ("systemctl", "dpkg", "caddy", "which", "apt-get"):
        program(root, name)
    do, done = part("web", "proxy", "do"), part("web", "proxy", "done")
    for command in ("cp -p /etc/caddy/Caddyfile /etc/caddy/Caddyfile.before", "true"):  # interrupted there
        file.write_text("of the distribution")
        code, output = run(root, f"{command}\n{do}", ADDRESS="gpu.example.org", CERTIFICATE="")
        assert code == 0, output
        assert "*.apps.gpu.example.org {" in file.read_text()
    file.write_text(own)
    program(root, "systemctl", '[ "$2" != is-active ]')
    assert run(root, done, ADDRESS="gpu.example.org", CERTIFICATE="")[0] != 0
    assert run(root, do, ADDRESS="gpu.example.org", CERTIFICATE="")[0] == 0
    assert file.read_text() == own
    program(root, "systemctl")
    assert run(root, done, ADDRESS="gpu.example.org", CERTIFICATE="")[0] == 0
    assert (root / "etc/caddy/Caddyfile.before").read_text() == "of the distribution"


def test_a_certificate_given_later_is_taken(root: Path) -> None:
    """In the sites of the platform alone. Where the administrator has named another in their own way, it is said."""
    (root / "code/deploy").symlink_to(CODE / "deploy")
    file = root / "etc/caddy/Caddyfile"
    file.parent.mkdir()
    for name in ("systemctl", "dpkg", "caddy", "which", "runuser"):
        program(root, name)
    # Of what listens on port 443, whose certificate is the last one in the Caddyfile, and of a file.
    program(
        root,
        "openssl",
        f'[ "$1" = s_client ] && cat {file} || {{ [ "$4" ] && echo "$5" || grep -o "/.*pem" | tail -n 1; }}',
    )
    do, done = part("web", "proxy", "do"), part("web", "proxy", "done")
    given = {"ADDRESS": "gpu.example.org", "CERTIFICATE": ""}
    assert run(root, do, **given)[0] == 0
    other = "wiki.example.org {\n\ttls /etc/wiki.pem /etc/wiki.key\n}\n"
    file.write_text(other + file.read_text())
    file.chmod(0o640)  # it may have secrets of the administrator
    for name in ("first", "second"):
        given["CERTIFICATE"] = f"/etc/{name}.pem /etc/{name}.key"
        assert run(root, done, **given)[0] != 0
        code, output = run(root, do, **given)
        assert code == 0, output
        assert run(root, done, **given)[0] == 0
        assert file.read_text().startswith(other)
        assert file.stat().st_mode & 0o777 == 0o640
        assert file.read_text().count(f"\ttls /etc/{name}.pem /etc/{name}.key\n") == 2
    assert run(root, done, **given | {"CERTIFICATE": ""})[0] == 0
    file.write_text("gpu.example.org {\n\ttls /etc/own.pem /etc/own.key {\n\t}\n}\n")
    code, output = run(root, do, **given)
    assert (code, "which is yours" in output) == (1, True)


def test_a_purge_takes_no_rule_of_others(root: Path) -> None:
    others = "*filter\n:VPNGP-X - [0:0]\n-A INPUT -m comment --comment GP-practice -j ACCEPT\nCOMMIT\n"
    own = ":GP-IN-br0 - [0:0]\n-A INPUT -i br0 -j GP-IN-br0\n-A GP-IN-br0 -j DROP\n"
    (root / "before").write_text(own + others)
    for tables in ("iptables", "ip6tables"):
        program(root, f"{tables}-save", f"cat {root}/before")
        program(root, f"{tables}-restore", f"cat >{root}/after")
    for name in ("docker", "runuser"):
        program(root, name)
    code, output = run(root, part("web", "services", "purge"))
    assert code == 0, output
    assert (root / "after").read_text() == others


def test_the_archive_for_no_network_has_what_steps_install() -> None:
    named = re.compile(r"--no-install-recommends ([a-z0-9. -]+)")
    (archive,) = named.findall(Path(CODE, "gpuplatform/bootstrap/offline.sh").read_text())
    asked = {
        name for role in UNITS for step in steps_of(role) for found in named.findall(step.do) for name in found.split()
    }
    assert {"caddy", "iptables"} < asked <= set(archive.split())
