"""Spec files on the command line, against a live server whose sessions nobody starts."""

from pathlib import Path

import pytest
import yaml

from accounts.models import ApiToken, User
from deployments.models import Deployment
from folders.models import Folder
from gpuplatform_client.tests.program import Command, RunningProgram
from sessions.models import Dependency, Session
from tests.factories import make_group, make_host, make_image, make_root, make_user, run_session
from tests.live import LiveServer
from tests.wait import until

SESSION = "kind: session\nname: train\nimage: team/torch:2\ncpu: 1\nmemory: 1g\nfgpu: 0.5\n"
SCRIPT = "#!/bin/bash\n#SBATCH --job-name=train --cpus-per-task=2\n#SBATCH --output=x\necho hi\n"
pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def user(transactional_db: None) -> User:
    host = make_host(group=make_group(name="lab"), gpus=1)
    make_root(host, is_default=True)
    make_image(reference="team/torch:2", environment="PyTorch", version="2")
    return make_user(email="user@example.org")


def written(folder: Path, text: str | bytes, name: str = "job.yaml") -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_a_file_of_one_session_is_followed(server: LiveServer, user: User, tmp_path: Path) -> None:
    _, token = ApiToken.objects.issue(user, name="test")
    with RunningProgram(server.url, token, tmp_path, "run", "-f", written(tmp_path, SESSION)) as program:
        until(lambda: any(line.startswith("PENDING") for line in program.messages))
        run_session(Session.objects.get())
        assert program.wait() == 0, program.messages
    assert any("gpuplatform ssh train" in line for line in program.messages)


def test_several_documents_print_their_ids(signed_in: Command, tmp_path: Path) -> None:
    text = (
        SESSION
        + "---\nkind: folder\nname: runs\n---\nkind: deployment\nname: chat\n"
        + "\n".join(["image: team/torch:2", "command: serve", "cpu: 1", "memory: 1g", ""])
    )
    done = signed_in("run", "--file", written(tmp_path, text))
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"session train {Session.objects.get().pk}",
        f"folder runs {Folder.objects.get().pk}",
        f"deployment chat {Deployment.objects.get().pk}",
    ]


def test_input_is_read_and_left_alone(signed_in: Command) -> None:
    done = signed_in("run", "-f", "-", "--detach", given=SESSION)
    assert (done.exit_code, done.stdout) == (0, f"{Session.objects.get().pk}\n")


def test_a_dry_run_says_what_would_be_granted(signed_in: Command, tmp_path: Path) -> None:
    done = signed_in("run", "-f", written(tmp_path, SESSION), "--dry-run")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "Line 1: session train. 1 CPU, 1 GiB, 0.5 fGPU in lab. It would start now.\n"
    assert not Session.objects.exists()


def test_a_script_is_translated_with_a_table(signed_in: Command, tmp_path: Path) -> None:
    path = written(tmp_path, SCRIPT, "train.sh")
    done = signed_in("run", "-f", path, "--image", "pytorch", "--dry-run")
    assert done.exit_code == 0, done.stderr
    spec = yaml.safe_load(done.stdout)
    assert (spec["name"], spec["cpu"], spec["image"]) == ("train", 2, "team/torch:2")
    rows = [line.split() for line in done.stderr.splitlines()]
    assert ["3", "--output=x", "left", "out"] in [row[:4] for row in rows]
    again = signed_in("run", "-d", "-f", written(tmp_path, done.stdout))
    assert again.exit_code == 0, again.stderr
    assert "echo hi" in Session.objects.get().command


def test_mistakes_are_told_by_line(signed_in: Command, tmp_path: Path) -> None:
    done = signed_in("run", "-f", written(tmp_path, SESSION + "fgpus: 1\n"))
    assert (done.exit_code, "line 7: fgpus: " in done.stderr) == (125, True)
    assert "Did you mean" in done.stderr
    done = signed_in("run", "-f", written(tmp_path, b"kind: session\nname: \xff\n"))
    assert (done.exit_code, "line 2 is no UTF-8" in done.stderr) == (125, True)
    done = signed_in("run", "-f", str(tmp_path / "nothing.yaml"))
    assert (done.exit_code, "No such file" in done.stderr) == (125, True)
    done = signed_in("run", "-f", written(tmp_path, SESSION), "--cpu", "3")
    assert (done.exit_code, "Beside a file" in done.stderr) == (2, True)
    assert signed_in("run").exit_code == 2
    assert not Session.objects.exists()


def test_what_runs_is_exported(signed_in: Command, tmp_path: Path) -> None:
    signed_in("run", "-d", "-f", written(tmp_path, SESSION))
    deployment = "kind: deployment\nname: chat\nimage: team/torch:2\ncommand: serve\ncpu: 1\nmemory: 1g\n"
    signed_in("run", "-f", written(tmp_path, deployment))
    exported = signed_in("export", "train")
    assert yaml.safe_load(exported.stdout)["fgpu"] == "0.5", exported.stderr
    assert exported.stdout.startswith("# yaml-language-server: $schema=")
    assert yaml.safe_load(signed_in("export", "chat").stdout)["kind"] == "deployment"
    assert "There is no" in signed_in("export", "nothing").stderr


def test_jobs_are_chained_from_the_command_line(signed_in: Command, tmp_path: Path) -> None:
    first = signed_in("run", "-d", "--image", "pytorch", "--name", "first", "--", "true").stdout.strip()
    second = signed_in("run", "-d", "--image", "pytorch", "--depends-on", f"after_any:{first}", "--", "true")
    assert second.exit_code == 0, second.stderr
    path = written(tmp_path, "#GP --image pytorch\ntrue\n", "then.sh")
    options = ("--dependency", f"afterok:{first},after:{second.stdout.strip()}")
    assert "depends on" in signed_in("run", "-f", path, *options, "--dry-run").stderr
    third = signed_in("run", "-d", "-f", path, *options).stdout.strip()
    kinds = {(each.from_session_id, each.to_session_id): each.kind for each in Dependency.objects.all()}
    ids = first, second.stdout.strip(), third
    assert kinds == {(ids[1], first): "after_any", (third, first): "after_ok", (third, ids[1]): "after"}
    refused = signed_in("run", "-d", "--image", "pytorch", "--dependency", f"aftercorr:{first}", "--", "true")
    assert (refused.exit_code, "after_not_ok" in refused.stderr) == (125, True)
