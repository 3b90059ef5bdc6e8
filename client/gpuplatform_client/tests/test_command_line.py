"""The program `gpuplatform` as a person runs it, against a live server without hosts: sessions wait."""

import fcntl
import json
import os
import re
import shlex
import stat
import subprocess
import sys
from html import unescape
from pathlib import Path
from threading import Thread

import httpx
import pytest
from django.db import connections
from django.utils import timezone

from accounts.models import AccountInvitation, ApiToken, User
from gpuplatform_client.tests.program import Command
from resources.amounts.units import MIB
from restapi import client_wheel
from sessions.models import Cluster, Session
from sessions.resizing import services as resizing
from sessions.resizing.sizes import StoredResize
from tests.factories import (
    make_group,
    make_host,
    make_image,
    make_preset,
    make_project,
    make_user,
    run_cluster,
    run_session,
)
from tests.live import ROOT, LiveServer, login_cookie
from tests.wait import until

pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def user(transactional_db: None) -> User:
    group = make_group(name="lab")
    make_host(group=group, gpus=1)
    make_preset(group=group, name="small", cpu=1)
    for version in ("2.13", "2.12"):
        make_image(reference=f"team/torch:{version}", environment="PyTorch", version=version)
    return make_user(email="user@example.org")


def test_login_is_stored_for_its_user_alone(signed_in: Command, server: LiveServer, tmp_path: Path) -> None:
    (stored,) = tmp_path.rglob("login.json")
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert signed_in("whoami").stdout == f"user@example.org at {server.url}\n"
    elsewhere = signed_in("whoami", GPUPLATFORM_URL=f"{server.url}/")  # another address, to which no token is sent
    assert (elsewhere.exit_code, "Sign in with" in elsewhere.stderr) == (3, True)
    assert signed_in("logout").exit_code == 0
    assert not stored.exists()
    assert "No platform is known yet" in signed_in("ls").stderr
    assert not ApiToken.objects.exists()


def test_the_page_of_tokens_installs_a_program_of_this_platform(server: LiveServer, user: User, tmp_path: Path) -> None:
    cookie = login_cookie(user, server.url)
    page = httpx.get(f"{server.url}/accounts/tokens/", cookies={cookie["name"]: cookie["value"]})
    [address] = re.findall(r'value="pip install (\S+)"', unescape(page.text))
    response = httpx.get(address)
    assert (response.status_code, response.headers["Cache-Control"]) == (200, "public, max-age=31536000, immutable")
    assert "Set-Cookie" not in response.headers
    assert httpx.get(address.replace("+", "+0")).status_code == 404
    site = tmp_path / "site"
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-cache-dir", "--target", str(site), address)
    subprocess.run([sys.executable, *install], check=True)
    assert not list(site.rglob("test_*.py"))
    assert (site / "share/man/man1/gpuplatform.1").exists()

    def run(*arguments: str, **variables: str) -> str:
        environment = {"PYTHONPATH": str(site), "HOME": str(tmp_path), "COLUMNS": "200", **variables}
        program = [sys.executable, str(site / "bin/gpuplatform"), *arguments]
        return subprocess.run(program, env=environment, check=True, capture_output=True, text=True).stdout

    assert run("login", GPUPLATFORM_TOKEN=ApiToken.objects.issue(user)[1]).startswith("Signed in as user@example.org")
    launched = run("run", "--image", "pytorch", "--preset", "small", "--name", "train", "--detach")
    assert Session.objects.get().pk == launched.strip()
    assert "train" in run("ls")
    assert run("whoami") == f"user@example.org at {server.url}\n"


def test_the_downloaded_file_alone_signs_in(server: LiveServer, user: User, tmp_path: Path) -> None:
    cookie = login_cookie(user, server.url)
    page = httpx.get(f"{server.url}/accounts/tokens/", cookies={cookie["name"]: cookie["value"]})
    [address] = re.findall(r'value="curl -fsSL --create-dirs (\S+) -o', unescape(page.text))
    response = httpx.get(address)
    assert (response.status_code, response.headers["Cache-Control"]) == (200, "no-cache")
    assert "Set-Cookie" not in response.headers
    assert httpx.get(address, headers={"If-None-Match": response.headers["ETag"]}).status_code == 304
    program = tmp_path / "gpuplatform"
    program.write_bytes(response.content)

    def run(*arguments: str, **variables: str) -> str:
        command = ["/usr/bin/python3", "-I", "-S", str(program), *arguments]  # nothing but Python's own library
        environment = {"HOME": str(tmp_path), "COLUMNS": "200", **variables}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    cache = tmp_path / ".cache/gpuplatform"
    for name in ("unused", "running", "young"):
        (cache / name).mkdir(parents=True)
        (cache / name / "old.py").touch()
        os.utime(cache / name, None if name == "young" else (0, 0))
    with (cache / "running" / ".lock").open("w") as lock:
        os.utime(cache / "running", (0, 0))
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert run("login", GPUPLATFORM_TOKEN=ApiToken.objects.issue(user)[1]).startswith("Signed in as user@example")
    assert not (cache / "unused").exists()
    assert run("whoami") == f"user@example.org at {server.url}\n"
    own, offered = run("--version").splitlines()
    assert (own, offered) == (
        f"gpuplatform {client_wheel.version(server.url)}",
        f"{server.url} offers {client_wheel.version(server.url)}",
    )
    assert "COMP_WORDS" in run("completion", "bash")
    [copy] = [each for each in cache.iterdir() if each.name not in ("running", "young")]
    assert len([*cache.iterdir()]) == 3
    assert run("whoami", XDG_CACHE_HOME="/dev/null") == f"user@example.org at {server.url}\n"  # nothing can be written
    assert copy.name == response.headers["ETag"].strip('"')


def test_bash_completes_names_of_the_platform(server: LiveServer, user: User, tmp_path: Path) -> None:
    run_session(owner=user, name="train")
    (tmp_path / "gpuplatform").write_text(f"#!{sys.executable}\nfrom gpuplatform_client.cli.app import main\nmain()\n")
    (tmp_path / "gpuplatform").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(ROOT / "client"), "HOME": str(tmp_path)}
    environment |= {"GPUPLATFORM_URL": server.url, "GPUPLATFORM_TOKEN": ApiToken.objects.issue(user)[1]}

    def completed(*words: str, **variables: str) -> tuple[set[str], str]:
        typed = f"COMP_WORDS=(gpuplatform {shlex.join(words)}); COMP_CWORD={len(words)}"
        show = '_gpuplatform_completion gpuplatform; printf "%s\\n" "${COMPREPLY[@]}"'
        script = f"source <(gpuplatform completion bash); {typed}; {show}"
        run = subprocess.run(
            ["bash", "-c", script], check=True, capture_output=True, text=True, env=environment | variables
        )
        return set(run.stdout.split()), run.stderr

    assert completed("port-f") == ({"port-forward"}, "")
    assert completed("logs", "tr") == ({"train"}, "")
    assert completed("run", "--image", "py") == ({"python", "pytorch"}, "")
    assert completed("logs", "x") == (set(), "")
    assert completed("logs", "tr", GPUPLATFORM_URL="http://127.0.0.1:9") == (set(), "")
    assert completed("logs", "tr", GPUPLATFORM_TOKEN="wrong") == (set(), "")


@pytest.mark.parametrize(("shell", "begins"), [("zsh", "#compdef gpuplatform"), ("fish", "complete --command")])
def test_other_shells_have_scripts_of_their_own(gpuplatform: Command, shell: str, begins: str) -> None:
    assert gpuplatform("completion", shell).stdout.startswith(begins)


def test_sessions_are_launched_listed_and_stopped(signed_in: Command) -> None:
    common = ("run", "--image", "pytorch", "--preset", "small", "--name", "train")
    assert "It would start now." in signed_in(*common, "--dry-run").stdout
    launched = signed_in(*common, "-e", "SEED=1", "--detach", "--", "python", "train.py", "--lr", "0.1 0.2")
    session = Session.objects.get(pk=launched.stdout.strip())
    assert (session.image.reference, session.command) == ("team/torch:2.13", "python train.py --lr '0.1 0.2'")
    assert session.environment == {"SEED": "1"}
    assert [word in signed_in("ls").stdout for word in ("train", session.pk, "PENDING")] == [True] * 3
    assert json.loads(signed_in("ls", "--json").stdout)["id"] == session.pk
    assert signed_in("top", "--once").stdout.split() == ["NAME", "CPU", "MEMORY", "GPU", "MEMORY", "GPU", "HOST"]
    assert signed_in("stop", "train").stdout == f"train ({session.pk}): CANCELLED\n"
    assert session.pk not in signed_in("ls").stdout
    assert session.pk in signed_in("ls", "--all").stdout
    entered = signed_in("ssh", "train", "nvidia-smi")
    assert (entered.exit_code, "it can be entered while it is RUNNING" in entered.stderr) == (1, True)


def test_members_of_clusters_are_launched_listed_and_named(signed_in: Command, user: User) -> None:
    host = make_host(gpus=2)
    common = ("run", "--image", "pytorch", "--fgpu", "0.5", "--name", "train", "--group", host.group.name, "--detach")
    options = ("--nodes", "3", "--cluster-mode", "single-host", "--share-gpus", "--max-restarts", "1")
    launched = signed_in(*common, *options, "--", "torchrun", "train.py")
    head, *others = Session.objects.order_by("rank").select_related("cluster")
    assert (launched.stdout.strip(), head.command, len(others)) == (head.pk, "torchrun train.py", 2)
    assert head.cluster
    assert (head.cluster.mode, head.cluster.shares_gpus, head.cluster.runs_on_all) == ("single-host", True, True)
    assert head.cluster.max_restarts == 1
    assert "3 x 1 CPU, 2 GiB, 0.5 fGPU" in signed_in("ls", COLUMNS="200").stdout
    assert "train.sub1" not in signed_in("ls").stdout
    listed = signed_in("ls", "--members", COLUMNS="200").stdout
    assert [f"train.{name}" in listed for name in ("main1", "sub1", "sub2")] == [True] * 3
    Session.objects.filter(pk=others[1].pk).update(status="ERROR", log_tail="from sub2", ended_at=timezone.now())
    assert signed_in("logs", "train.sub2").stdout == "from sub2\n"
    assert "There is no session 'train.sub3'" in signed_in("logs", "train.sub3").stderr
    Session.objects.filter(pk=others[0].pk).update(previous_output="before")
    assert signed_in("logs", "train.sub1", "--previous").stdout == "before\n"
    assert signed_in("logs", "train.sub1", "--previous", "-f").exit_code == 2
    assert signed_in(*common[:3], "--cluster-mode", "any").exit_code == 2
    by_main = signed_in(*common, *options, "--name", "solver", "--on-main", "--", "mpirun", "solve")
    assert Session.objects.filter(cluster=by_main.stdout.strip(), command="mpirun solve").count() == 1
    elastic = signed_in(*common, "--nodes", "1-3", "--name", "grows", "--", "torchrun", "train.py")
    assert Session.objects.get(pk=elastic.stdout.strip()).cluster == Cluster.objects.get(size=1, max_size=3)
    assert "1-3 x 1 CPU" in signed_in("ls", COLUMNS="200").stdout
    for wrong in ("0", "-4", "4-", "two"):
        assert "--nodes" in signed_in(*common, f"--nodes={wrong}", "--", "true").stderr
    refused = signed_in(*common[:-1], "--nodes", "9", "--name", "more", "--", "true")
    assert (refused.exit_code, "cluster.size: " in refused.stderr) == (125, True)


def test_main_has_the_size_that_is_its_own(signed_in: Command, user: User) -> None:
    host = make_host(gpus=2)
    common = ("run", "--image", "pytorch", "--fgpu", "0.5", "--group", host.group.name, "--detach", "--nodes", "3")
    signed_in(*common, "--main-fgpu", "0", "--main-memory", "1g", "--main-cpu", "4", "--", "true")
    assert list(Session.objects.order_by("rank").values_list("cpu", "fgpu")) == [(4, 0), (1, 500), (1, 500)]
    assert "4 CPU, 1 GiB + 2 x 1 CPU, 2 GiB, 0.5 fGPU" in signed_in("ls", COLUMNS="200").stdout
    refused = signed_in(*common, "--main-fgpu", "0.7", "--", "true")
    assert (refused.exit_code, "cluster.main.fgpu: " in refused.stderr) == (125, True)


def test_a_session_is_resized_and_the_end_waited_for(signed_in: Command, user: User) -> None:
    session = run_session(owner=user, name="train", host=make_host(cpu=8, gpus=1), cpu=1, fgpu=500)

    def host_applies(problem: str) -> Thread:
        def finish() -> None:
            stored = until(lambda: StoredResize.of(Session.objects.get(pk=session.pk)))
            assert stored
            resizing.finish(session.pk, stored.id, problem)
            connections.close_all()

        host = Thread(target=finish)
        host.start()
        return host

    for arguments, problem, shown, code in (
        (("--cpu", "2", "--fgpu", "0.75"), "", "2 CPU, 1 GiB, 0.75 fGPU", 0),
        (("--memory", "512m"), "It uses 600 MiB.", "2 CPU, 1 GiB, 0.75 fGPU", 1),
    ):
        host = host_applies(problem)
        done = signed_in("resize", "train", *arguments)
        host.join()
        assert (done.stdout, done.exit_code) == (f"train ({session.pk}): {shown}\n", code)
        assert problem in done.stderr
    refused = signed_in("resize", "train", "--cpu", "9")
    assert (refused.exit_code, "cpu: Its host has room for at most 8 CPU cores" in refused.stderr) == (5, True)
    assert signed_in("resize", "train").exit_code == 2


def test_a_member_that_was_not_resized_is_named(signed_in: Command, user: User) -> None:
    members = run_cluster(2, owner=user, name="train", hosts=[make_host(cpu=8)], cpu=2)

    def finish() -> None:
        for member, problem in zip(members, ("", "It is busy."), strict=True):
            stored = until(lambda member=member: StoredResize.of(Session.objects.get(pk=member.pk)))  # type: ignore[misc]
            assert stored
            resizing.finish(member.pk, stored.id, problem)
        connections.close_all()

    host = Thread(target=finish)
    host.start()
    done = signed_in("resize", "train.sub1", "--cpu", "1")
    host.join()
    assert (done.stdout, done.exit_code) == (f"train ({members[0].pk}): 1 CPU, 1 GiB + 1 x 2 CPU, 1 GiB\n", 1)
    assert done.stderr == "sub1: It is busy.\n"


def test_members_are_resized_apart_from_a_main_of_another_size(signed_in: Command, user: User) -> None:
    members = run_cluster(3, owner=user, name="train", hosts=[make_host(cpu=8)], cpu=1)
    Cluster.objects.update(main_differs=True)

    def finish(*resized: Session) -> Thread:
        def go() -> None:
            for member in resized:
                stored = until(lambda member=member: StoredResize.of(Session.objects.get(pk=member.pk)))  # type: ignore[misc]
                assert stored
                resizing.finish(member.pk, stored.id, "")
            connections.close_all()

        host = Thread(target=go)
        host.start()
        return host

    for name, resized, memory in (("train.sub2", members[1:], "512m"), ("train", members[:1], "768m")):
        host = finish(*resized)
        done = signed_in("resize", name, "--memory", memory)
        host.join()
        assert (done.exit_code, done.stderr) == (0, "")
    sizes = list(Session.objects.order_by("rank").values_list("memory", flat=True))
    assert sizes == [768 * MIB, 512 * MIB, 512 * MIB]


def test_failures_name_field_and_exit_as_docker_run_does(signed_in: Command) -> None:
    refused = signed_in("run", "--image", "pytorch:2.12", "--cpu", "1", "--memory", "much", "--", "true")
    assert (refused.exit_code, "memory: " in refused.stderr) == (125, True)
    assert "There is no session 'nobody'" in signed_in("logs", "nobody").stderr
    assert signed_in("run", "--image", "x", "--fgpu", "half").exit_code == 2
    assert signed_in("cp", "a", "b").exit_code == 1
    assert not Session.objects.exists()


def test_folders_are_created_listed_and_removed(signed_in: Command) -> None:
    refused = signed_in("folders", "rm", "nothing")
    assert (refused.exit_code, "There is no folder 'nothing'" in refused.stderr) == (4, True)
    assert "NAME" in signed_in("folders", "ls").stdout


def test_managers_choose_the_members_of_their_projects(signed_in: Command, user: User) -> None:
    project = make_project(managers=[user], name="vision")
    make_user(email="kim@example.org")
    assert signed_in("projects", "--no-headers").stdout.split() == ["vision", "manager", "1", "yes"]
    assert signed_in("projects", "add", "Vision", "kim@example.org").stdout == "kim@example.org: member of vision\n"
    assert "already" in signed_in("projects", "add", "vision", "kim@example.org").stderr
    changed = signed_in("projects", "role", "vision", "KIM@example.org", "manager")
    assert changed.stdout == "kim@example.org: manager of vision\n"
    assert signed_in("projects", "members", "vision").stdout.split()[2:4] == ["kim@example.org", "manager"]
    assert signed_in("projects", "remove", "vision", "kim@example.org").exit_code == 0
    refused = signed_in("projects", "remove", "vision", "kim@example.org")
    assert (refused.exit_code, "kim@example.org is no member of vision" in refused.stderr) == (4, True)
    assert signed_in("projects", "invite", "vision", "new@example.org").exit_code == 0
    assert "There is no project 'x'" in signed_in("projects", "invite", "x", "new@example.org").stderr
    assert [each.user for each in project.memberships.all()] == [user]
    assert AccountInvitation.objects.get().project == project
