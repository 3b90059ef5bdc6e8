"""Pilots: what Slurm granted bounds the host, and what a killed one left is removed."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import docker
import pytest

from engine.containers import HOST_LABEL
from hostaccess.host_file import ROOT
from hostworker.pilot import Children, PilotError, bounds
from tests.containers import ENGINE_URL, running_container
from tests.podman import answering_podman
from tests.shell_image import ensure_shell_image

GRANTED = {"SLURM_CPUS_ON_NODE": "4", "SLURM_MEM_PER_NODE": "200"}


@pytest.mark.parametrize(
    ("granted", "found"),
    [
        ({}, {"COMPUTE_HOST_CPU": "4", "COMPUTE_HOST_MEMORY": "209715200", "COMPUTE_HOST_GPUS": "none"}),
        ({"CUDA_VISIBLE_DEVICES": "1,3"}, {"COMPUTE_HOST_GPUS": "1,3"}),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, {"COMPUTE_HOST_GPUS": "none"}),
        ({"SLURM_MEM_PER_NODE": "", "SLURM_MEM_PER_CPU": "50"}, {"COMPUTE_HOST_MEMORY": "209715200"}),
        ({"SLURM_MEM_PER_NODE": "0"}, {}),
    ],
)
def test_what_slurm_granted_bounds_the_host(granted: dict[str, str], found: dict[str, str]) -> None:
    limits = bounds(GRANTED | granted)
    assert limits | found == limits
    assert ("COMPUTE_HOST_MEMORY" in limits) == (granted.get("SLURM_MEM_PER_NODE") != "0")


@pytest.mark.parametrize("granted", [{"SLURM_CPUS_ON_NODE": ""}, {"SLURM_MEM_PER_NODE": "", "SLURM_MEM_PER_CPU": ""}])
def test_a_grant_that_is_not_said_grants_nothing(granted: dict[str, str]) -> None:
    with pytest.raises(PilotError, match="what it granted"):
        bounds(GRANTED | granted)


def clean(folder: Path) -> subprocess.CompletedProcess[str]:
    return run(folder, "--clean")


def run(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"COMPUTE_VAR_DIR": str(folder), "COMPUTE_DOCKER_URL": ENGINE_URL} | variables
    command = [sys.executable, "-m", "hostworker.pilot", *words]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.docker
def test_the_epilog_removes_what_a_killed_pilot_left(tmp_path: Path) -> None:
    folder, image = tmp_path / "pilots", ensure_shell_image()
    for name in ("gone", "alive"):
        (folder / name).mkdir(parents=True)
        (folder / name / "host").write_text(f"gp-{tmp_path.name}-{name}")
    folder.chmod(0o700)
    (folder / "gone" / "arbiter").symlink_to(tmp_path / "arbiter")
    (tmp_path / "arbiter" / "session-1").mkdir(parents=True)
    names = {name: {HOST_LABEL: f"gp-{tmp_path.name}-{name}"} for name in ("gone", "alive")}
    holder = ["flock", str(folder / "alive"), "sh", "-c", "echo locked; read _"]
    variables = f"COMPUTE_VAR_DIR={tmp_path}", f"GPUPLATFORM_CHECKOUT={ROOT}", "SLURM_JOB_UID=0", "SLURM_JOB_USER=root"
    client = docker.APIClient(ENGINE_URL, version="auto")
    gone = client.create_container(image, ["true"], labels=names["gone"])["Id"]
    with (
        closing(client),
        running_container(image, labels=names["alive"]) as alive,
        subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as pilot,
    ):
        assert pilot.stdout is not None
        assert pilot.stdin is not None
        pilot.stdout.readline()
        epilog = ["env", "-i", *variables, "sh", str(ROOT / "deploy/slurm/epilog.sh")]  # as slurmd runs it
        subprocess.run(epilog, cwd="/", check=True)
        left = {container["Id"] for container in client.containers(all=True)}
        pilot.stdin.close()
        assert alive.id in left
        assert gone not in left
        assert [path.name for path in folder.iterdir()] == ["alive"]
        assert not (tmp_path / "arbiter").exists()


def test_a_host_that_was_given_back_waits_for_sessions_alone() -> None:
    left = [True, False]
    children = Children(os.environ | {"DATABASE_URL": "postgresql://gone@127.0.0.1:1/gone"})
    try:
        children.leave(60, 60, lambda: left.pop(0))
    finally:
        children.end()
    assert left == []


def test_a_folder_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pilots").mkdir()
    (tmp_path / "pilots").chmod(0o777)
    done = clean(tmp_path)
    assert done.returncode == 1
    assert "is not a folder of this user alone" in done.stderr


def test_outside_of_slurm_there_is_no_pilot(tmp_path: Path) -> None:
    assert "This is no job of Slurm's" in run(tmp_path, "https://gpu.example.org").stderr


def test_a_node_with_podman_is_no_host_and_says_so(tmp_path: Path) -> None:
    with answering_podman(tmp_path) as url:
        done = run(tmp_path, "https://127.0.0.1:1", SLURM_JOB_ID="1", COMPUTE_DOCKER_URL=url, **GRANTED)
    assert done.stderr.startswith(
        "This node is no host of GPU Platform: the container engine will not do: it is Podman"
    )
