"""Requests by GPU memory: on GPUs of unequal size they get the smallest share that has it."""

from typing import Any

import pytest

from resources.amounts.units import GIB
from resources.gpus.shares import share_bytes
from resources.gpus.tiers import Tier
from resources.models import Gpu, Host, ResourceGroup
from scheduler.cycle import passes
from sessions.launching import services
from sessions.launching.requests import ClusterRequest
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.resizing import services as resizing
from sessions.resizing.sizes import StoredResize
from sessions.tests.launch_requests import make_launch_request, rejection
from tests.api import client_of
from tests.factories import make_gpu, make_group, make_host, make_policy, make_user, run_session

URL = "/api/v1/sessions/"
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def group() -> ResourceGroup:
    """A group in which a GPU is 1 fGPU, with hosts of a GPU of 24, 40 and 80 GiB."""
    group = make_group(fgpu_per_gpu=1)
    for name, size in (("RTX 4090", 24), ("A100 40", 40), ("A100 80", 80)):
        make_gpu(host=make_host(group=group, cpu=8), name=name, memory=size * GIB)
    return group


def host_of(group: ResourceGroup, size: int) -> Host:
    return Host.objects.get(group=group, gpus__memory=size * GIB)


def launch(group: ResourceGroup, gib: int, **fields: Any) -> Session:
    owner = fields.pop("owner", None) or make_user()
    request = make_launch_request(host_of(group, 24), gpu_memory=gib * GIB, **{"fgpu": 0, **fields})
    return services.submit(owner, request)[0]


def placed(group: ResourceGroup, *sessions: Session) -> list[tuple[int, int]]:
    """Make a pass; return the GiB of the GPU of each session, and its milli-fGPU, (0, 0) where it waits."""
    passes.run_group_pass(group.pk)
    found = []
    for session in sessions:
        session.refresh_from_db()
        shares = [] if session.status == Status.PENDING else list(session.lease.shares.all())
        assert not shares or session.fgpu == sum(share.milli for share in shares)
        found.append((shares[0].gpu.memory // GIB, shares[0].milli) if shares else (0, 0))
    return found


def test_the_smallest_gpu_grants_the_smallest_share(group: ResourceGroup) -> None:
    sessions = [launch(group, 12) for _ in range(2)] + [launch(group, 13), launch(group, 60)]
    assert placed(group, *sessions) == [(24, 500), (24, 500), (40, 325), (80, 750)]
    session = launch(group, 7)
    assert placed(group, session) == [(40, 175)]
    assert share_bytes(40 * GIB, session.fgpu, 1000) >= session.gpu_memory == 7 * GIB


def test_what_is_granted_is_never_below_what_was_asked(group: ResourceGroup) -> None:
    owner = make_user()
    request = make_launch_request(host_of(group, 24), gpu_memory=GIB + 1, fgpu=0, count=20)
    for session in services.submit(owner, request):
        ((size, milli),) = placed(group, session)
        if size:
            assert share_bytes(size * GIB, milli, 1000) >= GIB + 1 > share_bytes(size * GIB, milli - 1, 1000)


def test_a_least_share_counts_beside_the_memory(group: ResourceGroup) -> None:
    assert placed(group, launch(group, 12, fgpu=600), launch(group, 12, fgpu=10)) == [(24, 600), (40, 300)]


def test_a_limit_leaves_the_gpus_on_which_it_is_kept(group: ResourceGroup) -> None:
    owner = make_user(policy=make_policy(fgpu=350))
    assert placed(group, launch(group, 12, owner=owner)) == [(40, 300)]
    assert placed(group, launch(group, 12, owner=owner)) == [(0, 0)]
    refused = rejection(owner, make_launch_request(host_of(group, 24), gpu_memory=40 * GIB, fgpu=0))
    assert refused == {"gpu_memory": "Your policy allows at most 0.35 fGPU."}


def test_what_no_gpu_has_is_refused_in_words(group: ResourceGroup) -> None:
    request = make_launch_request(host_of(group, 24), gpu_memory=81 * GIB, fgpu=0)
    text = "The largest GPU of this group has 80 GiB; a session gets it of one device."
    assert rejection(make_user(), request) == {"gpu_memory": text}


def test_one_that_waits_says_for_what(group: ResourceGroup) -> None:
    for size in (40, 80):
        run_session(host=host_of(group, size), fgpu=900)
    session = launch(group, 30)
    assert placed(group, session) == [(0, 0)]
    assert session.detail == (
        "Waiting for 0.75 fGPU on one GPU: the most that is free on a single GPU is 0.1. "
        "Only hosts with GPUs of 40 GiB count. GPUs of other sizes would do as well."
    )


def test_the_api_takes_and_shows_gpu_memory(group: ResourceGroup) -> None:
    owner = make_user()
    client = client_of(owner)
    body = {"image": make_launch_request(host_of(group, 24)).image.reference, "resource_group": group.name}
    amounts = {"cpu": 1, "memory": "1g", "gpu_memory": "12g"}
    answer = client.post(URL, {**body, **amounts}, content_type="application/json")
    assert answer.status_code == 201, answer.content
    (session,) = answer.json()["sessions"] if "sessions" in answer.json() else answer.json()
    assert (session["gpu_memory"], session["fgpu"]) == (12 * GIB, "0.15")
    answer = client.post("/api/v1/sessions/estimate/", {**body, **amounts}, content_type="application/json")
    assert answer.json()["starts"] == "now"
    found = {(each["gpu_model"], each["fgpu"], each["fits"]) for each in answer.json()["gpus"]}
    # The session that was just launched has the other half of the first.
    assert found == {("RTX 4090", "0.5", 1), ("A100 40", "0.3", 3), ("A100 80", "0.15", 6)}


def test_a_resize_keeps_it_in_memory(group: ResourceGroup) -> None:
    session = launch(group, 12, fgpu=500)
    assert placed(group, session) == [(24, 500)]
    Gpu.objects.update(tier=Tier.HOOK)
    Session.objects.update(status=Status.RUNNING)
    session.refresh_from_db()
    url = f"{URL}{session.pk}/resize/"
    answer = client_of(session.owner).post(url, {"gpu_memory": "7g"})
    assert answer.status_code == 200, answer.content
    stored = StoredResize.of(Session.objects.get(pk=session.pk))
    assert stored is not None
    value = Session.objects.get(pk=session.pk).resize
    assert value is not None
    assert value["to"].keys() == value["from"].keys(), "the version before knows no other amounts"
    assert resizing.finish(session.pk, stored.id)
    session.refresh_from_db()
    assert (session.fgpu, session.gpu_memory, session.min_fgpu) == (292, 24 * GIB * 292 // 1000, 292)
    refused = client_of(session.owner).post(url, {"gpu_memory": "7g", "fgpu": "0.3"})
    assert refused.json()["errors"] == {"gpu_memory": ["Name fgpu or gpu_memory, not both."]}
    shared = run_session(host=host_of(group, 80), fgpu=300, owner=session.owner)
    refused = client_of(session.owner).post(f"{URL}{shared.pk}/resize/", {"gpu_memory": "7g"})
    assert refused.json()["errors"] == {"gpu_memory": ["It was launched with a share of a GPU: name that."]}


def test_a_claim_is_of_one_size(group: ResourceGroup) -> None:
    for size in (24, 40, 80):
        run_session(host=host_of(group, size), fgpu=900, is_preemptible=size == 40)
    session = launch(group, 12)
    assert placed(group, session) == [(0, 0)]
    assert placed(group, session) == [(0, 0)]
    assert session.claim is not None
    assert session.claim["placed"][0][1] == host_of(group, 40).pk


def test_a_claim_stands_where_sizes_have_equal_shares(group: ResourceGroup) -> None:
    for size in (24, 40, 80):
        run_session(host=host_of(group, size), fgpu=900, is_preemptible=size == 40)
    session = launch(group, 12, fgpu=500)  # half of the one of 24 GiB, and no less of the others
    for _ in range(2):
        assert placed(group, session) == [(0, 0)]
    claim = session.claim
    assert claim is not None
    assert claim["placed"][0][1] == host_of(group, 40).pk
    assert placed(group, session) == [(0, 0)]
    assert session.claim == claim
    Session.objects.filter(host=host_of(group, 40)).get().move_to(Status.TERMINATED, Reason.USER_REQUEST)
    assert placed(group, session) == [(40, 500)]


def test_members_of_a_cluster_have_gpus_of_one_size(group: ResourceGroup) -> None:
    cluster = ClusterRequest(size=2, shares_gpus=True, main_fgpu=0)
    session = launch(group, 30, cluster=cluster)
    Host.objects.update(cluster_address="10.0.0.1")
    passes.run_group_pass(group.pk)
    found = session.members.order_by("rank").values_list("fgpu", "gpu_memory", "status")
    assert list(found) == [(0, 0, Status.SCHEDULED), (750, 30 * GIB, Status.SCHEDULED)]
    refused = rejection(
        make_user(),
        make_launch_request(host_of(group, 24), gpu_memory=GIB, fgpu=0, cluster=ClusterRequest(size=2, main_fgpu=500)),
    )
    assert refused["cluster_main_fgpu"].startswith("The first member has as much GPU memory")
