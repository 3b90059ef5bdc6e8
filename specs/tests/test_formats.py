"""Scripts and task files of others: what becomes of each option, and that what is asked for is what runs."""

import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.utils import timezone

from accounts.models import User
from resources.amounts.units import GIB, MIB
from resources.models import Gpu, ResourceGroup
from sessions.models import Session
from specs.formats.translation import script_command
from specs.tests.worlds import is_empty, make_owner, post
from tests.factories import make_group, make_host, make_project, make_session

BODY = "python train.py\n"
GP = """#!/bin/bash
#GP --image pytorch:2 --cpu 4 --memory 8g
#GP --fgpu 0.5 --name 123456 --preemptible -e SEED=7 --env=MODE=fast  # as on the command line
echo 'it''s running'
"""
SLURM = """#!/bin/bash -l
#SBATCH --job-name=my job
#SBATCH -t 1-12:30 -c 4 --mem=16G
#SBATCH --gres=gpu:sim:2   # of each node
#SBATCH -p default --account=vision
#SBATCH --output=out-%j.txt --mail-type=END --nice=5
#SBATCH --export=ALL,SEED=7,PATH
#SBATCH -D ~/runs
#SBATCH --array=1-10%1

srun python train.py
#SBATCH --mem=1G
"""
SKYPILOT = """name: train
resources:
  accelerators: sim:1
  cpus: 4+
  memory: 16+
  image_id: docker:lab/pytorch:2
  use_spot: true
  cloud: aws
num_nodes: 2
envs:
  SEED: 7
  TOKEN:
workdir: .
file_mounts:
  /data: s3://bucket
setup: |
  pip install -r requirements.txt
run: |
  python train.py --rank $SKYPILOT_NODE_RANK
"""
DSTACK = """type: task
name: train
image: lab/pytorch:2
env:
- SEED=7
- TOKEN
commands:
- pip install -r requirements.txt
- python train.py
resources:
  cpu: 2..8
  memory: 12GB..
  shm_size: 1GB
  gpu: sim:4GB..8GB:2
nodes: 1
max_duration: 90m
backends: [aws]
working_dir: src
"""
SERVICE = """type: service
name: chat
image: lab/pytorch:2
commands: [python serve.py]
port: 9000
replicas: 1..4
auth: false
resources: {gpu: 1}
"""
pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(tmp_path: Path) -> User:
    owner = make_owner(tmp_path)
    Gpu.objects.update(name="NVIDIA SIM-1 8GB")
    make_project(owner, name="vision")
    return owner


def translated(owner: User, text: str, **options: Any) -> dict[str, Any]:
    answer = post(owner, text, dry_run=True, **options)
    assert answer.status_code == 200, answer.json()
    assert is_empty()
    body: dict[str, Any] = answer.json()
    return body


def fields_of(owner: User, text: str, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(translated(owner, text, **options)["spec"])
    return found


def outcomes(owner: User, text: str, **options: Any) -> dict[str, str]:
    return {row["option"]: row["outcome"] for row in translated(owner, text, **options)["translated"]}


def refusal(owner: User, text: str) -> tuple[str, str]:
    answer = post(owner, text)
    assert answer.status_code == 400, answer.json()
    assert is_empty()
    [(place, [message])] = answer.json()["errors"].items()
    return place, message


def test_gp_lines_are_options_of_run(owner: User) -> None:
    assert post(owner, GP).status_code == 201
    session = Session.objects.get()
    assert (session.name, session.cpu, session.memory, session.fgpu) == ("123456", 4, 8 * GIB, 500)
    assert (session.environment, session.image.reference) == ({"SEED": "7", "MODE": "fast"}, "lab/pytorch:2")
    done = subprocess.run(["sh", "-c", session.command], capture_output=True, text=True, check=True)
    assert done.stdout == "its running\n"


def test_gp_lines_describe_clusters_and_folders(owner: User) -> None:
    options = "--nodes 2-3 --cluster-mode spread --main-cpu 2 --on-main --mount data:/srv/d:ro"
    place, message = refusal(owner, f"#GP --image pytorch {options}\n{BODY}")
    assert (place, "'data'" in message) == ("line 1: mounts", True)
    without = options.partition(" --mount")[0].replace("--cluster-mode spread ", "")
    fields = fields_of(owner, f"#GP --image pytorch {without}\n{BODY}")
    assert fields["cluster"] == {"size": 2, "max_size": 3, "runs_on_all": False, "main": {"cpu": 2}}


@pytest.mark.parametrize(
    ("line", "place", "said"),
    [
        ("#GP --gpu 1", "line 2: #GP --gpu 1", "“fgpu”"),
        ("#GP --fgpu 0.555", "line 2: fgpu", "0.55 and 0.56"),
        ("#GP --env SEED", "line 2: #GP --env", "NAME=VALUE"),
        ("#GP --name 'a", "line 2: #GP", "no end"),
        ("#GP --cpu many", "line 2: cpu", "Allowed: 1 to"),
        ("#SBATCH --time=soon", "line 2: #SBATCH --time=soon", "1:30:00"),
        ("#SBATCH --mem=lots", "line 2: #SBATCH --mem=lots", "16G"),
        ("#SBATCH --gres=gpu:h900:1", "line 2: --gres=gpu:h900:1", "NVIDIA SIM-1 8GB"),
        ("#SBATCH --dependency=afterany:12", "line 2: #SBATCH --dependency=afterany:12", "afterok"),
        ("#SBATCH --nodes=many", "line 2: #SBATCH --nodes=many", "2-4"),
        ("#SBATCH --ntasks=0", "line 2: #SBATCH --ntasks=0", "whole number"),
        ("#SBATCH --begin=someday", "line 2: #SBATCH --begin=someday", "now+1hour"),
        ("#SBATCH --partition=gpu", "line 2: resource_group", "'gpu'"),
    ],
)
def test_a_wrong_option_is_told_at_its_line(owner: User, line: str, place: str, said: str) -> None:
    found, message = refusal(owner, f"#!/bin/bash\n{line}\n#GP --image pytorch\n{BODY}")
    assert (found, said in message) == (place, True), message


def test_gp_lines_describe_arrays(owner: User) -> None:
    result = translated(owner, f"#!/bin/bash\n#GP --image pytorch --array 1-9 --max-parallel 3 --retries=2\n{BODY}")
    fields = yaml.safe_load(result["spec"])
    assert fields.items() >= {"kind": "array", "tasks": "1-9", "max_parallel": 3, "retries": 2}.items()


def test_a_slurm_script_becomes_a_session(owner: User) -> None:
    result = translated(owner, SLURM, image="pytorch")
    fields = yaml.safe_load(result["spec"])
    command = fields.pop("command")
    assert fields == {
        **{"kind": "array", "tasks": "1-10%1", "name": "my-job", "resource_group": "default", "project": "vision"},
        **{"time_limit": "2190m", "env": {"SEED": "7"}, "cpu": 4, "memory": "16384m", "fgpu": "4"},
        **{"gpu_model": "NVIDIA SIM-1 8GB", "image": "lab/pytorch:2"},
    }
    assert "cd /home/work/runs" in command
    assert command.endswith('exec /bin/bash -l "$f"')
    rows = {row["option"]: (row["line"], row["outcome"]) for row in result["translated"]}
    assert rows["--job-name=my"] == (2, "changed")
    assert rows["--array=1-10%1"] == (9, "translated")
    assert rows["--mem=16G"] == (3, "translated")
    assert rows["--gres=gpu:sim:2"] == (4, "translated")
    for option, line in {"--output=out-%j.txt": 6, "--nice=5": 6, "srun": 11}.items():
        assert rows[option] == (line, "left_out"), option


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("--time=90", {"time_limit": "90m"}),
        ("--time=1:30", {"time_limit": 90}),
        ("--time=0:30", {"time_limit": "1m"}),
        ("--time=2:00:00", {"time_limit": "120m"}),
        ("--time=1-0", {"time_limit": "1440m"}),
        ("--time=UNLIMITED", {}),
        ("--mem=1500", {"memory": "1500m"}),
        ("--mem-per-cpu=2G -c 3", {"memory": "6144m", "cpu": 3}),
        ("--mem-per-gpu=3G -G 1", {"memory": "3072m", "fgpu": "2"}),
        ("-n 4", {"cpu": 4}),
        ("-n 4 -c 2", {"cpu": 8}),
        ("-N 2 -n 4 -c 2", {"cpu": 4, "cluster": {"size": 2, "runs_on_all": False}}),
        ("--nodes=2-3", {"cluster": {"size": 2, "runs_on_all": False, "max_size": 3}}),
        ("--gpus=2", {"fgpu": "4"}),
        ("--gpus=1 -N 2", {"fgpu": "2", "cluster": {"size": 2, "runs_on_all": False}}),
        ("--gres=gpu", {"fgpu": "2"}),
        ("--gpus-per-node=sim:1", {"fgpu": "2", "gpu_model": "NVIDIA SIM-1 8GB"}),
        ("-p default,other", {"resource_group": "default", "resource_groups": ["other"]}),
        ("-J training -J trained", {"name": "trained"}),
    ],
)  # fmt: skip
def test_each_slurm_option_has_its_meaning(owner: User, options: str, wanted: dict[str, Any]) -> None:
    if "other" in options:
        make_host(group=make_group(name="other"))
    fields = fields_of(owner, f"#SBATCH {options}\n#GP --image pytorch\n{BODY}")
    usual = {"kind": "session", "image": "lab/pytorch:2", "cpu": 1, "memory": "2048m"}
    assert {name: value for name, value in fields.items() if name != "command"} == usual | wanted


def test_a_delay_counts_from_now(owner: User) -> None:
    post(owner, f"#SBATCH --begin=now+2hours\n#GP --image pytorch\n{BODY}")
    session = Session.objects.get()
    assert session.not_before is not None
    assert abs(session.not_before - session.created_at - timedelta(hours=2)) < timedelta(minutes=1)


def test_a_moment_is_in_utc(owner: User) -> None:
    moment = (timezone.now() + timedelta(days=3)).replace(microsecond=0)
    post(owner, f"#SBATCH --begin={moment:%Y-%m-%dT%H:%M:%S}\n#GP --image pytorch\n{BODY}")
    assert Session.objects.get().not_before == moment


def test_a_dependency_is_on_sessions(owner: User) -> None:
    other = make_session(owner=owner, resource_group=ResourceGroup.objects.get())
    assert post(owner, f"#SBATCH -d afterok:{other.pk}\n#GP --image pytorch\n{BODY}").status_code == 201
    assert other in Session.objects.exclude(pk=other.pk).get().depends_on.all()


def test_a_skypilot_task_becomes_a_cluster(owner: User) -> None:
    result = translated(owner, SKYPILOT)
    fields = yaml.safe_load(result["spec"])
    assert "pip install -r requirements.txt\npython train.py --rank" in fields.pop("command")
    assert fields == {
        **{"kind": "session", "name": "train", "cluster": {"size": 2, "runs_on_all": True}, "env": {"SEED": "7"}},
        **{"fgpu": "2", "gpu_model": "NVIDIA SIM-1 8GB", "cpu": 4, "memory": "16384m", "image": "lab/pytorch:2"},
        "preemptible": True,
    }
    rows = {row["option"]: (row["line"], row["outcome"]) for row in result["translated"]}
    assert rows["resources.cpus: 4+"] == (4, "changed")
    for option, line in {"resources.cloud: aws": 8, "workdir: .": 13, "file_mounts": 14, "envs.TOKEN": 10}.items():
        assert rows[option] == (line, "left_out"), option


def test_a_dstack_task_becomes_a_session(owner: User) -> None:
    result = translated(owner, DSTACK)
    fields = yaml.safe_load(result["spec"])
    command = fields.pop("command")
    assert "pip install -r requirements.txt\npython train.py" in command
    assert "cd src" in command
    assert fields == {
        **{"kind": "session", "name": "train", "image": "lab/pytorch:2", "env": {"SEED": "7"}, "time_limit": 5400},
        **{"cpu": 2, "memory": "12288m", "shared_memory": "1g", "fgpu": "4", "gpu_model": "NVIDIA SIM-1 8GB"},
        "min_gpu_memory": "4g",
    }
    assert fields_of(owner, DSTACK)["fgpu"] == "4"


def test_a_dstack_service_becomes_a_deployment(owner: User) -> None:
    result = translated(owner, SERVICE.replace("auth: false\n", ""))
    fields = yaml.safe_load(result["spec"])
    assert "python serve.py" in fields.pop("command")
    assert fields == {
        **{"kind": "deployment", "name": "chat", "image": "lab/pytorch:2", "port": 9000, "replicas": 1, "fgpu": "2"},
        **{"cpu": 1, "memory": "2048m"},
    }
    assert result["documents"][0]["estimate"]["starts"] == "now"


def test_without_an_image_one_is_asked_for(owner: User) -> None:
    assert refusal(owner, f"#SBATCH -c 2\n{BODY}")[0] == "line 1: image"
    assert fields_of(owner, f"#SBATCH -c 2\n{BODY}", image="PyTorch")["image"] == "lab/pytorch:2"


def test_the_spec_of_a_script_is_the_same_request(owner: User) -> None:
    spec = translated(owner, SLURM, image="pytorch")["spec"]
    assert spec.startswith("# yaml-language-server: $schema=http")
    assert translated(owner, spec)["documents"][0] | {"line": 1} == translated(owner, SLURM, image="pytorch")[
        "documents"
    ][0] | {"line": 1}


@pytest.mark.parametrize("first", ["#!/bin/bash", "#!/usr/bin/env python3", "# no shebang"])
def test_a_script_runs_by_its_interpreter(first: str, tmp_path: Path) -> None:
    text = f"{first}\nprint('''it's \"$HOME\"''')\n" if "python" in first else f'{first}\necho "it\'s" \'"$HOME"\'\n'
    command = script_command(text, [f"cd '{tmp_path}'"])
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == 'it\'s "$HOME"\n'


def test_memory_is_in_units_of_1024(owner: User) -> None:
    assert post(owner, f"#SBATCH --mem=1G\n#GP --image pytorch\n{BODY}").status_code == 201
    assert Session.objects.get().memory == 1024 * MIB
