"""Launch templates on the command line, against a live server whose sessions nobody starts."""

from pathlib import Path

import pytest

from accounts.models import User
from gpuplatform_client.tests.program import Command
from sessions.models import Session
from specs.models import LaunchTemplate
from specs.tests.template_rows import TEXT, make_template
from tests.factories import make_group, make_host, make_image, make_user

pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def user(transactional_db: None) -> User:
    make_host(group=make_group(name="lab"), gpus=1)
    make_image(reference="lab/pytorch:2", environment="PyTorch", version="2")
    return make_user(email="user@example.org")


def test_a_template_is_made_launched_and_deleted(signed_in: Command, tmp_path: Path) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(TEXT)
    made = signed_in("templates", "create", "-f", str(path))
    assert (made.exit_code, made.stdout.split()) == (0, [LaunchTemplate.objects.get().pk]), made.stderr
    assert "0.1" in signed_in("templates", "show", "train").stdout
    outlook = signed_in("templates", "launch", "train", "--set", "lr=0.5", "--dry-run")
    assert "session" in outlook.stdout, outlook.stderr
    assert not Session.objects.exists()
    launched = signed_in("templates", "launch", "train", "--set", "lr=0.5")
    assert launched.stdout.split() == [Session.objects.get().pk], launched.stderr
    assert Session.objects.get().command == "python train.py --lr 0.5"
    assert "user@example.org" in signed_in("templates", "ls", "--search", "tra").stdout
    exported = signed_in("templates", "export", "train").stdout
    path.write_text(exported.replace("'0.1'", "'0.2'"))
    assert signed_in("templates", "create", "-f", str(path)).exit_code == 0
    assert "yes" in signed_in("templates", "versions", "train", "--make-current", "1").stdout
    assert LaunchTemplate.objects.get().version == 1
    assert signed_in("templates", "rm", "train").exit_code == 0
    assert not LaunchTemplate.objects.exists()


def test_mistakes_of_templates_are_told(signed_in: Command, user: User, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("kind: session\nimage: lab/pytorch:2\ncpu: 1\nmemory: 1g\n")
    assert "has a session" in signed_in("templates", "create", "-f", str(path)).stderr
    assert "no template" in signed_in("templates", "launch", "train").stderr
    make_template(user)
    assert "lr" in signed_in("templates", "launch", "train", "--set", "lr=high").stderr
    assert signed_in("templates", "launch", "train", "--set", "lr").exit_code == 2
    make_template()
    assert "Several" in signed_in("templates", "launch", "train").stderr
    assert not Session.objects.exists()
