"""Arrays on the command line, against a live server whose sessions nobody starts."""

import pytest

from accounts.models import User
from arrays.models import Array
from gpuplatform_client.tests.program import Command
from tests.factories import make_group, make_host, make_image, make_user

pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def user(transactional_db: None) -> User:
    make_host(group=make_group(name="lab"), gpus=1)
    make_image(reference="lab/pytorch:2", environment="PyTorch", version="2")
    return make_user(email="user@example.org")


def test_an_array_is_submitted_changed_and_cancelled(signed_in: Command) -> None:
    made = signed_in("run", "--image", "pytorch", "--name", "sweep", "--array", "1-20%2", "--", "train.py")
    array = Array.objects.get()
    assert (made.exit_code, made.stdout.split()) == (0, [array.pk]), made.stderr
    assert (array.size, array.max_parallel) == (20, 2)
    assert "sweep" in signed_in("arrays").stdout
    assert signed_in("arrays", "set", "sweep", "--max-parallel", "5").exit_code == 0
    assert signed_in("arrays", "hold", "sweep").stdout.split() == ["HELD"]
    assert signed_in("arrays", "release", "sweep").stdout.split() == ["ACTIVE"]
    assert signed_in("arrays", "cancel", array.pk, "--tasks", "1-10").exit_code == 0
    listed = signed_in("arrays", "tasks", "sweep", "--state", "CANCELLED", "-q")
    assert listed.stdout.split() == [str(index) for index in range(1, 11)], listed.stderr
    assert "1" in signed_in("arrays", "task", "sweep", "1").stdout
    assert signed_in("arrays", "logs", "sweep", "1").exit_code == 0
    assert signed_in("arrays", "logs", "sweep", "1", "--previous").exit_code == 0
    assert signed_in("arrays", "wait", "sweep", "--timeout", "1s").exit_code == 124
    assert signed_in("arrays", "cancel", "sweep").exit_code == 0
    assert signed_in("arrays", "retry", "sweep", "--tasks", "1-2").exit_code == 0
    array.refresh_from_db()
    assert (array.max_parallel, array.counted()["waiting"], array.counted()["cancelled"]) == (5, 2, 18)


def test_parameters_make_a_grid_of_tasks(signed_in: Command) -> None:
    options = ("--image", "pytorch", "--param", "lr=0.1,0.01", "--param", "mode=fast,1e2", "--retries", "1")
    assert signed_in("run", *options, "--", "train.py").exit_code == 0
    array = Array.objects.get()
    assert [each.parameters for each in array.tasks.order_by("index")] == [
        {"lr": lr, "mode": mode} for lr in (0.1, 0.01) for mode in ("fast", "1e2")
    ]
    assert array.retries == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--array", "1-3", "--param", "lr=1"), "Tasks have indices"),
        (("--param", "lr"), "NAME=VALUE"),
        (("--param", "lr=1", "--param", "lr=2"), "each name once"),
        (("--max-parallel", "2"), "Say which tasks"),
        (("--array", "9-1"), "9-1"),
    ],
)
def test_tasks_that_are_written_wrongly_are_refused(options: tuple[str, ...], words: str, signed_in: Command) -> None:
    refused = signed_in("run", "--image", "pytorch", *options, "--", "train.py")
    assert refused.exit_code in (2, 5, 125)
    assert words in " ".join(refused.stderr.split())
    assert not Array.objects.exists()
