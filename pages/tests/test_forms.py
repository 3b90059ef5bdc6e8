"""The launch form: what people type, what is ordered, and where each message stands."""

from typing import Any

import pytest
from django.http import QueryDict

from accounts.models import User
from folders.models import Folder
from pages.launch.forms import LaunchForm
from resources.amounts.units import GIB, MIB
from resources.models import Host, Image, ResourceGroup
from sessions.models import Session
from tests.factories import (
    make_folder,
    make_group,
    make_host,
    make_image,
    make_policy,
    make_preset,
    make_root,
    make_user,
)
from tests.web import browser_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def group() -> ResourceGroup:
    return make_host(group=make_group(fgpu_per_gpu=2), gpus=1).group


@pytest.fixture
def image() -> Image:
    return make_image()


def typed(group: ResourceGroup, offered: Image, **changes: Any) -> QueryDict:
    values: dict[str, Any] = {"image": offered.pk, "resource_group": group.pk, "preset": "", "name": "", "count": "1"}
    values |= {"cpu": "2", "memory": "4g", "shared_memory": "64m", "fgpu": "0.5"} | changes
    data = QueryDict(mutable=True)
    for name, value in values.items():
        data.setlist(name, [str(each) for each in value] if isinstance(value, list) else [str(value)])
    return data


def test_a_launch_orders_what_was_typed(owner: User, group: ResourceGroup, image: Image) -> None:
    data = typed(group, image, name="my-work", variable=["A", "", "B"], value=["1", "", ""])
    response = browser_of(owner).post("/sessions/launch/", dict(data.lists()), follow=True)
    assert "Launched my-work." in response.content.decode()
    session = Session.objects.get()
    assert (session.owner, session.image, session.resource_group) == (owner, image, group)
    assert (session.cpu, session.memory, session.shared_memory, session.fgpu) == (2, 4 * GIB, 64 * MIB, 500)
    assert session.environment == {"A": "1", "B": ""}


def test_a_preset_overrides_custom_amounts(owner: User, group: ResourceGroup, image: Image) -> None:
    preset = make_preset(cpu=3, memory=GIB, shared_memory=128 * MIB, fgpu=1000)
    form = LaunchForm(owner, typed(group, image, preset=preset.pk, cpu="", memory="nonsense"))
    assert form.is_valid(), form.errors
    (session,) = form.save()
    assert (session.cpu, session.memory, session.shared_memory, session.fgpu) == (3, GIB, 128 * MIB, 1000)


def test_a_command_has_the_line_ends_of_a_shell(owner: User, group: ResourceGroup, image: Image) -> None:
    form = LaunchForm(owner, typed(group, image, command="cd data\r\npython train.py"))
    assert form.is_valid(), form.errors
    (session,) = form.save()
    assert session.command == "cd data\npython train.py"


def test_several_sessions_are_launched_at_once(owner: User, group: ResourceGroup, image: Image) -> None:
    form = LaunchForm(owner, typed(group, image, count="3"))
    assert form.is_valid()
    assert len(form.save()) == 3


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("name", "abc", "4 to 64 characters"),
        ("name", "has spaces", "only letters"),
        ("cpu", "two", "whole number"),
        ("cpu", "", "CPU cores"),
        ("cpu", "0", "at least 1"),
        ("cpu", "-1", "at least 1"),
        ("cpu", "9" * 5000, "whole number"),
        ("cpu", "999999", "core"),
        ("memory", "lots", "not a size"),
        ("memory", "4", "no unit; write for example 4g or 512m"),
        ("shared_memory", "64", "no unit"),
        ("time_limit", "4", "write for example 90m, 4h or 2d"),
        ("memory", "", "RAM"),
        ("memory", "1m", "at least 64 MiB"),
        ("memory", "9999t", ""),
        ("shared_memory", "8g", "cannot be above 4 GiB"),
        ("fgpu", "half", "not a number"),
        ("fgpu", "0.355", "fGPU is granted in steps of 0.01; the nearest values are 0.35 and 0.36."),
        ("fgpu", "-1", "zero or more"),
        ("fgpu", "50", ""),
        ("fgpu", "1e9", ""),
        ("count", "0", "1 to 50"),
        ("count", "51", "1 to 50"),
        ("count", "", "how many"),
        ("image", "424242", "not offered"),
        ("image", "", "Choose an environment"),
        ("resource_group", "424242", "may not use"),
        ("preset", "424242", "not offered"),
    ],
)
def test_an_invalid_value_is_shown_and_kept(
    owner: User, group: ResourceGroup, image: Image, field: str, text: str, words: str
) -> None:
    make_group(name="a second group")
    data = typed(group, image, **{"name": "keep-me", "variable": ["KEPT"], "value": ["as typed"]} | {field: text})
    response = browser_of(owner).post("/sessions/launch/", dict(data.lists()))
    page = response.content.decode()
    assert response.status_code == 422
    assert words in "".join(response.context["form"].errors[field])
    assert f'id="error-{field}"' in page
    assert 'value="KEPT"' in page
    assert 'value="as typed"' in page
    if field not in ("image", "resource_group", "preset"):
        assert f'name="{field}" id="id_{field}" value="{text}"' in page
    assert not Session.objects.exists()


@pytest.mark.parametrize(
    ("variables", "values", "words"),
    [
        (["A", "A"], ["1", "2"], "A is given twice"),
        ([""], ["lonely"], "has no variable name"),
        (["1A"], ["x"], "is not a variable name"),
        (["GPUPLATFORM_X"], ["x"], "is reserved"),
    ],
)
def test_bad_variables_are_reported(
    owner: User, group: ResourceGroup, image: Image, variables: list[str], values: list[str], words: str
) -> None:
    form = LaunchForm(owner, typed(group, image, variable=variables, value=values))
    assert not form.is_valid()
    assert words in form.errors["environment"][0]


def test_an_inaccessible_group_is_no_choice(owner: User, image: Image) -> None:
    form = LaunchForm(owner, typed(make_group(open_to_all=False), image))
    assert not form.is_valid()
    assert list(form.errors) == ["resource_group"]


def test_a_disabled_image_is_no_choice(owner: User, group: ResourceGroup) -> None:
    form = LaunchForm(owner, typed(group, make_image(is_enabled=False)))
    assert list(form.errors) == ["image"]


def test_a_preset_of_another_group_is_refused(owner: User, group: ResourceGroup, image: Image) -> None:
    form = LaunchForm(owner, typed(group, image, preset=make_preset(group=make_group()).pk))
    assert "another resource group" in form.errors["preset"][0]


def test_a_rejected_preset_amount_shows_at_the_preset(group: ResourceGroup, image: Image) -> None:
    owner = make_user(policy=make_policy(cpu=2))
    form = LaunchForm(owner, typed(group, image, preset=make_preset(cpu=4).pk))
    assert form.is_valid()
    assert form.save() == []
    assert list(form.errors) == ["preset"]


def test_a_person_with_one_group_cannot_change_it(owner: User, group: ResourceGroup, image: Image) -> None:
    page = browser_of(owner).get("/sessions/launch/").content.decode()
    assert 'name="resource_group" id="id_resource_group" aria' not in page
    assert f'<input type="hidden" name="resource_group" id="id_resource_group" value="{group.pk}">' in page


def test_the_page_explains_why_nothing_can_be_launched(owner: User) -> None:
    assert "No resource group is open to you yet" in browser_of(owner).get("/sessions/launch/").content.decode()
    make_group()
    assert "No environment is offered yet" in browser_of(owner).get("/sessions/launch/").content.decode()


def test_impossible_and_invalid_values_show_together(group: ResourceGroup, image: Image) -> None:
    owner = make_user(policy=make_policy(cpu=4))
    form = LaunchForm(owner, typed(group, image, name="abc", count="many", cpu="8", fgpu="7", time_limit="soon"))
    assert not form.is_valid()
    assert set(form.errors) == {"name", "count", "time_limit", "cpu", "fgpu"}
    assert "Your policy allows at most 4 CPU cores." in form.errors["cpu"]
    assert "The largest host of this group has 2 fGPU." in form.errors["fgpu"]


def test_impossible_preset_amounts_show_with_other_errors(group: ResourceGroup, image: Image) -> None:
    owner = make_user(policy=make_policy(cpu=4))
    form = LaunchForm(owner, typed(group, image, name="abc", preset=make_preset(cpu=8).pk))
    assert not form.is_valid()
    assert set(form.errors) == {"name", "preset"}


class TestFolders:
    """What is ticked among the folders."""

    @pytest.fixture
    def folder(self, owner: User, group: ResourceGroup) -> Folder:
        return make_folder(owner, root=make_root(Host.objects.get(group=group)), name="data")

    def test_ticked_folders_are_mounted(self, owner: User, group: ResourceGroup, image: Image, folder: Folder) -> None:
        make_folder(owner, root=folder.root, name="other")
        data = typed(group, image, mount=[folder.pk], mount_read_only=[folder.pk], **{f"mount_path_{folder.pk}": "x"})
        form = LaunchForm(owner, data)
        assert form.is_valid(), form.errors
        (session,) = form.save()
        assert [(row.path, row.is_read_only) for row in session.mounts.all()] == [("/home/work/x", True)]

    def test_what_is_wrong_stands_at_the_folder(
        self, owner: User, group: ResourceGroup, image: Image, folder: Folder
    ) -> None:
        data = typed(group, image, name="a", mount=[folder.pk], **{f"mount_path_{folder.pk}": "/etc/x"})
        form = LaunchForm(owner, data)
        assert not form.is_valid()
        assert set(form.errors) == {"name", "mounts"}
        (row,) = form.folders.rows
        assert (row.is_chosen, row.path) == (True, "/etc/x")
        assert "/etc/x is a path of the system" in row.problem

    def test_folders_of_strangers_cannot_be_ticked(
        self, owner: User, group: ResourceGroup, image: Image, folder: Folder
    ) -> None:
        for wrong in (make_folder(root=folder.root).pk, "nothing", "\0"):
            form = LaunchForm(owner, typed(group, image, mount=[wrong]))
            assert form.errors == {
                "mounts": ["A folder is not there any more, or no longer shared with you; choose again."]
            }


def test_a_session_can_be_given_up_to_others(group: ResourceGroup, image: Image) -> None:
    free, bound = make_user(), make_user(policy=make_policy(preemptible_only=True))
    for owner, changes, is_preemptible in (
        (free, {}, False),
        (free, {"is_preemptible": "on"}, True),
        (bound, {}, True),
    ):
        browser = browser_of(owner)
        assert "may be ended for others" in browser.get("/sessions/launch/?fresh=1").content.decode()
        browser.post("/sessions/launch/", dict(typed(group, image, **changes).lists()), follow=True)
        session = Session.objects.filter(owner=owner).latest("created_at")
        assert session.is_preemptible is is_preemptible
        assert session.charge_percent == (group.preemptible_charge_percent if is_preemptible else 100)
        page = browser.get(f"/sessions/{session.pk}/").content.decode()
        assert ("<dt>Preemptible</dt>" in page) is is_preemptible
