"""What is read before a launch: what an early page of the wizard does not launch, and what its parts say."""

from pathlib import Path
from typing import Any

import pytest

from accounts.models import User
from pages.launch.advice import button_of
from resources.models import Host, Image
from scheduler.advice.advisor import SessionAdvice, Starts
from sessions.lifecycle import Status
from sessions.models import Session
from tests.factories import make_group, make_host, make_image, make_policy, make_root, make_user, run_session
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db

LAUNCH = "/sessions/launch/"


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def host() -> Host:
    return make_host(group=make_group(name="lab", fgpu_per_gpu=2), gpus=1)


@pytest.fixture
def image(host: Host) -> Image:
    return make_image(environment="Python", version="3.11")


def form_of(host: Host, image: Image, **changes: Any) -> dict[str, Any]:
    typed = {"image": image.pk, "resource_group": host.group.pk, "preset": "", "count": "1", "form_key": "tab-1"}
    return typed | {"cpu": "2", "memory": "4g", "shared_memory": "64m", "fgpu": "0.5"} | changes


class TestUnread:
    """What an early page of the wizard does not launch before it was read."""

    def post(self, owner: User, form: dict[str, Any], unread: str) -> str:
        answer = browser_of(owner).post(LAUNCH, form | {"unread": unread}, follow=True)
        return answer.content.decode()

    def test_a_launch_without_folder_is_reviewed(self, owner: User, host: Host, image: Image) -> None:
        page = self.post(owner, form_of(host, image, name="half-done"), "queue folders")
        assert "Not launched yet: look at it once more. No data folder is mounted." in page
        assert "half-done" in page
        assert not Session.objects.exists()
        assert "Launched" in self.post(owner, form_of(host, image, name="half-done"), "queue")

    def test_a_launch_that_would_wait_is_reviewed(self, owner: User, host: Host, image: Image) -> None:
        run_session(host=host, cpu=host.cpu)
        page = self.post(owner, form_of(host, image), "queue")
        assert "It would wait; below stands until when, and why." in page
        assert not Session.objects.filter(status=Status.PENDING).exists()
        assert "Launched" in self.post(owner, form_of(host, image), "")

    def test_a_new_folder_without_scripts_is_chosen(
        self, owner: User, host: Host, image: Image, tmp_path: Path
    ) -> None:
        root = make_root(host, path=str(tmp_path))
        answer = browser_of(owner).post(f"{LAUNCH}folders/new/", {"name": "thesis", "root": root.pk}, follow=True)
        assert [row.folder.name for row in answer.context["form"].folders.chosen] == ["thesis"]


def test_image_names_are_offered_where_they_are_allowed(host: Host, image: Image) -> None:
    named = "id_image_name"
    assert named not in text_of(browser_of(make_user()), LAUNCH)
    assert named in text_of(browser_of(make_user(policy=make_policy(allow_unlisted_images=True))), LAUNCH)
    has_own = make_user()
    make_image(environment="genomics", owner=has_own)
    assert named in text_of(browser_of(has_own), LAUNCH)


@pytest.mark.parametrize(
    ("starts", "text"), [(["now"], "Launch"), (["now", None], "Launch 1, queue 1"), ([None], "Queue")]
)
def test_the_button_says_what_will_happen(starts: list[Starts], text: str) -> None:
    assert button_of([SessionAdvice(each) for each in starts]) == text
