"""Clusters in the launch wizard: what is asked for, where messages stand, links, and launches again."""

from typing import Any

import pytest

from accounts.models import User
from pages.launch.forms import LaunchForm
from resources.models import Host, Image, ResourceGroup
from sessions.models import Session
from tests.factories import make_group, make_host, make_image, make_policy, make_user
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db

LAUNCH = "/sessions/launch/"
CLUSTER = {"cluster_size": "4", "cluster_mode": "any", "cluster_shares_gpus": "on", "cluster_max_restarts": "2"}


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def hosts() -> list[Host]:
    """Two hosts of 16 cores with a GPU of 2 fGPU each."""
    group = make_group(name="lab", fgpu_per_gpu=2)
    return [make_host(group=group, gpus=1) for _ in range(2)]


@pytest.fixture
def image() -> Image:
    return make_image(environment="Python", version="3.11")


def typed(hosts: list[Host], image: Image, **changes: Any) -> dict[str, Any]:
    values = {"image": image.pk, "resource_group": hosts[0].group.pk, "preset": "", "count": "1", "name": "train"}
    return values | {"cpu": "2", "memory": "4g", "shared_memory": "64m", "fgpu": "0.5"} | CLUSTER | changes


@pytest.mark.parametrize("wrong", ["image", "resource_group"])
def test_the_review_of_a_cluster_stands_whatever_else_is_wrong(
    owner: User, hosts: list[Host], image: Image, wrong: str
) -> None:
    values = typed(hosts, image, cluster_main_fgpu="0") | {wrong: ""}
    page = browser_of(owner).post(f"{LAUNCH}advice/", values)
    assert page.status_code == 200
    assert "together 8 cores, 16 GiB RAM, 1.5 fGPU" in page.content.decode()


def test_a_launch_without_scripts_makes_a_cluster(owner: User, hosts: list[Host], image: Image) -> None:
    page = browser_of(owner).post(LAUNCH, typed(hosts, image), follow=True).content.decode()
    assert "Launched train." in page
    head = Session.objects.select_related("cluster").get(rank=0)
    assert head.cluster
    assert (head.cluster.size, head.cluster.mode, head.cluster.max_restarts) == (4, "any", 2)
    assert (head.cluster.shares_gpus, head.cluster.runs_on_all) == (True, False)
    assert Session.objects.filter(cluster=head.cluster, fgpu=500).count() == 4


@pytest.mark.parametrize("size", ["", "1"])
def test_one_member_is_a_plain_session(owner: User, hosts: list[Host], image: Image, size: str) -> None:
    browser_of(owner).post(LAUNCH, typed(hosts, image, cluster_size=size))
    assert Session.objects.get().cluster is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"cluster_size": "0"}, "cluster_size"),
        ({"cluster_size": "65"}, "cluster_size"),
        ({"cluster_size": "9"}, "cluster_size"),  # of the four shares of the two GPUs
        ({"cluster_size": "some"}, "cluster_size"),
        ({"cluster_mode": "nowhere"}, "cluster_mode"),
        ({"cluster_mode": "single-host", "cluster_size": "5"}, "cluster_mode"),
        ({"cluster_runs_on_all": "on"}, "cluster_runs_on_all"),  # without a command
        ({"cluster_max_size": "3"}, "cluster_max_size"),
        ({"cluster_max_size": "all"}, "cluster_max_size"),
        ({"cluster_max_restarts": "11"}, "cluster_max_restarts"),
        ({"cluster_max_restarts": "x"}, "cluster_max_restarts"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(
    owner: User, hosts: list[Host], image: Image, changes: dict[str, str], field: str
) -> None:
    answer = browser_of(owner).post(LAUNCH, typed(hosts, image, **changes))
    page = answer.content.decode()
    assert (answer.status_code, list(answer.context["form"].errors)) == (422, [field])
    assert answer.context["step"].slug == "resources"
    assert f'id="error-{field}"><span>' in page
    assert '<details class="card advanced" id="cluster" open>' in page
    assert not Session.objects.exists()


def test_limits_count_all_members(hosts: list[Host], image: Image) -> None:
    owner = make_user(policy=make_policy(fgpu=1500, max_cluster_size=8))
    answer = browser_of(owner).post(LAUNCH, typed(hosts, image))
    assert "all 4 members have 2 fGPU" in answer.content.decode()


def test_the_review_says_what_all_members_have(owner: User, hosts: list[Host], image: Image) -> None:
    page = " ".join(browser_of(owner).post(f"{LAUNCH}advice/", typed(hosts, image)).content.decode().split())
    assert "4 members, on as few hosts as possible, may share a GPU, starts again 2 times" in page
    assert "together 8 cores, 16 GiB RAM, 2 fGPU" in page
    assert "Starts now" in page
    assert "cluster_size=4&amp;cluster_mode=any&amp;cluster_max_restarts=2" in page
    assert "cluster_shares_gpus=on" in page
    main = {"cluster_main_cpu": "1", "cluster_main_fgpu": "0"}
    page = " ".join(browser_of(owner).post(f"{LAUNCH}advice/", typed(hosts, image, **main)).content.decode().split())
    assert "main1 1 core, 4 GiB RAM, 0 fGPU" in page
    assert "together 7 cores, 16 GiB RAM, 1.5 fGPU" in page
    assert "cluster_main_cpu=1&amp;cluster_main_fgpu=0" in page
    browser_of(owner).post(LAUNCH, typed(hosts, image, **main))
    assert list(Session.objects.order_by("rank").values_list("cpu", "fgpu")) == [(1, 0), *[(2, 500)] * 3]


def test_an_elastic_cluster_begins_with_one_member(owner: User, hosts: list[Host], image: Image) -> None:
    asked = typed(hosts, image, cluster_size="1", cluster_max_size="4")
    page = " ".join(browser_of(owner).post(f"{LAUNCH}advice/", asked).content.decode().split())
    assert "1 member, grows to 4, on as few hosts as possible" in page
    assert "cluster_size=1&amp;cluster_max_size=4" in page
    browser = browser_of(owner)
    browser.post(LAUNCH, asked)
    head = Session.objects.select_related("cluster").get(rank=0)
    assert head.cluster
    assert (head.cluster.size, head.cluster.max_size) == (1, 4)
    form = browser.get(f"{LAUNCH}resources/?again={head.pk}").context["form"]
    assert (form["cluster_size"].value(), form["cluster_max_size"].value(), form.cluster_is_open) == (1, 4, True)


def test_links_and_launches_again_carry_a_cluster(owner: User, hosts: list[Host], image: Image) -> None:
    browser = browser_of(owner)
    browser.post(LAUNCH, typed(hosts, image, command="train", cluster_runs_on_all="on", cluster_mode="single-host"))
    head = Session.objects.get(rank=0)
    link = "cluster_size=3&cluster_mode=spread&cluster_runs_on_all=on&cluster_max_restarts=1"
    for query, values in (
        (f"again={head.pk}", [4, "single-host", True, True, 2]),
        (link, ["3", "spread", None, True, "1"]),
    ):
        form: LaunchForm = browser.get(f"{LAUNCH}resources/?{query}").context["form"]
        names = ("size", "mode", "shares_gpus", "runs_on_all", "max_restarts")
        assert [form[f"cluster_{name}"].value() for name in names] == values
        assert form.cluster_is_open
    assert '<details class="card advanced" id="cluster">' in text_of(browser_of(make_user()), LAUNCH)


def test_the_last_launch_is_offered_with_its_cluster(owner: User, hosts: list[Host], image: Image) -> None:
    browser = browser_of(owner)
    browser.post(LAUNCH, typed(hosts, image, command="torchrun train.py", cluster_runs_on_all="on"))
    form = browser.get(LAUNCH, follow=True).context["form"]
    assert [form[name].value() for name in CLUSTER] == [4, "any", True, 2]
    assert not form["cluster_runs_on_all"].value(), "the command is not offered either"


def test_the_wizard_says_what_the_network_of_hosts_means(owner: User, hosts: list[Host], image: Image) -> None:
    words = "In lab, members that may be on several hosts run in the network of their hosts"
    elastic = "A cluster that grows has a network of its own."
    assert words not in text_of(browser_of(owner), LAUNCH)
    ResourceGroup.objects.update(cluster_host_network=True)
    page = text_of(browser_of(owner), LAUNCH)
    assert words in page
    assert elastic in page
