"""The verbs of endpoints: what may be opened, published, shared and closed, and the record that each leaves."""

import socket
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings

from endpoints import services
from endpoints.routing import routes
from proxy.authorization.signing import digest
from sessions.access import app_states
from sessions.errors import RejectedError
from sessions.lifecycle import Reason, Status
from sessions.models import Cluster, Endpoint, EndpointState, Revocation, Session
from sessions.notify import host_queue
from tests.factories import make_app, make_endpoint, make_policy, make_user, run_reachable_session, session_in
from tests.ports import free_port
from tests.queues import take_all

pytestmark = pytest.mark.django_db
SOON = timedelta(hours=1)
FIRST, SECOND = free_port(), free_port()
POOL = f"{FIRST}, {SECOND}"


@pytest.fixture
def session() -> Session:
    session = run_reachable_session()
    make_app(session.image)
    return session


def events(endpoint: Endpoint) -> list[str]:
    return [event.what for event in endpoint.events.all()]


def test_opening_an_app_creates_a_token_and_notifies_the_host(
    session: Session, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    queue = host_queue("test-host")
    take_all(queue)
    with django_capture_on_commit_callbacks(execute=True):
        endpoint, note = services.open_app(session, "jupyter", actor=session.owner)
    assert (endpoint.title, endpoint.port, endpoint.state, note) == ("Jupyter", 8888, "STARTING", "")
    assert len(endpoint.token) >= 32
    assert take_all(queue) == [("hostworker.tasks.open_app", (endpoint.pk,))]
    assert events(endpoint) == ["Opened."]
    assert endpoint.events.get().actor == session.owner


def test_opening_again_keeps_the_endpoint(session: Session) -> None:
    first = services.open_app(session, "jupyter", actor=session.owner).endpoint
    app_states.report(first, EndpointState.READY)
    again = services.open_app(session, "jupyter", actor=session.owner).endpoint
    assert (again.pk, again.token, again.epoch, again.state) == (first.pk, first.token, 1, "READY")


@pytest.mark.parametrize("state", ["FAILED", "CLOSED"])
def test_a_failed_or_closed_app_starts_again(session: Session, state: str) -> None:
    endpoint = make_endpoint(session, state=state, detail="It ended.", token="")
    again = services.open_app(session, "p8080", actor=session.owner).endpoint
    assert (again.pk, again.state, again.detail, again.token) == (endpoint.pk, "STARTING", "", "")


def test_opening_undoes_no_end_of_public_access(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = make_endpoint(session, app="p8080", state="FAILED", is_public=True)
    prepare = services._prepare

    def prepare_late(*arguments: Any) -> None:
        services.unpublish(endpoint, actor=session.owner)
        prepare(*arguments)

    monkeypatch.setattr(services, "_prepare", prepare_late)
    services.open_app(session, "p8080", actor=session.owner)
    endpoint.refresh_from_db()
    assert (endpoint.state, endpoint.is_public, endpoint.epoch) == ("STARTING", False, 2)


def test_an_app_is_opened_by_the_shared_clock(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    right = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: right - timedelta(days=1))
    endpoint = services.open_app(session, "p8080", actor=session.owner).endpoint
    assert abs(endpoint.opened_at - right) < timedelta(hours=1), "or its host takes it for waited for too long"


def test_apps_of_one_port_share_a_token(session: Session) -> None:
    session.image.apps.update(port=8888)
    make_app(session.image, name="lab", port=8888)
    make_app(session.image, name="other", port=8889)
    names = ("jupyter", "lab", "other")
    jupyter, lab, other = (services.open_app(session, app, actor=session.owner).endpoint.token for app in names)
    assert jupyter == lab != other
    elsewhere = run_reachable_session(owner=session.owner)
    make_app(elsewhere.image, name="lab", port=8888)
    assert services.open_app(elsewhere, "lab", actor=session.owner).endpoint.token not in (jupyter, other)


def test_a_port_of_the_container_is_opened_by_number(session: Session) -> None:
    endpoint = services.open_app(session, "p8080", actor=session.owner).endpoint
    assert (endpoint.title, endpoint.port, endpoint.token) == ("Port 8080", 8080, "")


@pytest.mark.parametrize("app", ["p80", "p1023", "p65536", "p08080", "p", "8080", "tensorboard", "p8080\n", "P8080"])
def test_an_unknown_name_is_refused(session: Session, app: str) -> None:
    with pytest.raises(RejectedError) as refused:
        services.open_app(session, app, actor=session.owner)
    assert "jupyter" in refused.value.errors["app"]
    assert not Endpoint.objects.exists()


@pytest.mark.parametrize("status", [Status.PENDING, Status.PREPARING, Status.TERMINATING, Status.TERMINATED])
def test_only_running_sessions_have_apps(status: Status) -> None:
    session = session_in(status)
    with pytest.raises(RejectedError) as refused:
        services.open_app(session, "p8080", actor=session.owner)
    assert "running" in refused.value.errors["app"]


def test_reports_of_closed_or_ended_apps_are_dropped(session: Session) -> None:
    endpoint = services.open_app(session, "jupyter", actor=session.owner).endpoint
    assert app_states.report(endpoint, EndpointState.FAILED, "x" * 400)
    endpoint.refresh_from_db()
    assert (endpoint.state, len(endpoint.detail)) == ("FAILED", 300)
    services.close(endpoint, actor=session.owner)
    assert not app_states.report(endpoint, EndpointState.READY)
    services.open_app(session, "jupyter", actor=session.owner)
    session.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    assert not app_states.report(endpoint, EndpointState.READY)


def test_publishing_voids_cookies_and_is_reversible() -> None:
    endpoint = make_endpoint()
    owner = endpoint.session.owner
    published = services.publish(endpoint, until=timezone.now() + SOON, actor=owner)
    assert (published.is_public, published.epoch) == (True, 2)
    assert services.publish(endpoint, actor=owner).epoch == 2, "only its time has changed"
    unpublished = services.unpublish(endpoint, actor=owner)
    assert (unpublished.is_public, unpublished.public_until, unpublished.epoch) == (False, None, 3)
    assert services.unpublish(endpoint, actor=owner).epoch == 3
    assert [what.split(" until")[0] for what in events(endpoint)] == ["Made public", "Made public", "No longer public"]


def test_a_policy_can_forbid_publishing_and_sharing() -> None:
    endpoint = make_endpoint(run_reachable_session(owner=make_user(policy=make_policy(allow_public_apps=False))))
    owner = endpoint.session.owner
    with pytest.raises(RejectedError, match="policy"):
        services.publish(endpoint, actor=owner)
    with pytest.raises(RejectedError, match="policy"):
        services.share(endpoint, expires=timezone.now() + SOON, actor=owner)


def test_closed_apps_are_neither_published_nor_shared() -> None:
    endpoint = make_endpoint()
    owner, later = endpoint.session.owner, timezone.now() + SOON
    with pytest.raises(RejectedError) as refused:
        services.publish(endpoint, until=timezone.now(), actor=owner)
    assert set(refused.value.errors) == {"public_until"}
    with pytest.raises(RejectedError) as refused:
        services.share(endpoint, expires=timezone.now(), actor=owner)
    assert set(refused.value.errors) == {"expires"}
    services.close(endpoint, actor=owner)
    with pytest.raises(RejectedError):
        services.publish(endpoint, actor=owner)
    with pytest.raises(RejectedError):
        services.share(endpoint, expires=later, actor=owner)


def test_revoking_a_share_link_voids_its_cookies() -> None:
    endpoint = make_endpoint()
    owner = endpoint.session.owner
    link, secret = services.share(endpoint, expires=timezone.now() + SOON, note="for Ada", actor=owner)
    assert link.digest == digest(secret)
    services.revoke(link, actor=owner)
    services.revoke(link, actor=owner)
    link.refresh_from_db()
    assert link.revoked_at
    assert link.revoked_at < Revocation.objects.get().at
    assert Revocation.objects.get().login == link.digest
    assert [what.split(" ")[0] for what in events(endpoint)] == ["Shared", "Share"]


@pytest.mark.parametrize("how", ["unpublish", "revoke", "close"])
def test_ending_foreign_access_renews_the_sessions_key(how: str) -> None:
    endpoint = make_endpoint(is_public=how != "revoke")
    owner = endpoint.session.owner
    link, _ = services.share(endpoint, expires=timezone.now() + SOON, actor=owner)
    Session.objects.update(ssh_public_key="ssh-ed25519 AAAA")
    {"unpublish": services.unpublish, "close": services.close}.get(how, lambda *_, **__: None)(endpoint, actor=owner)
    if how == "revoke":
        services.revoke(link, actor=owner)
    assert Session.objects.get().ssh_public_key == ""


def test_closing_a_private_app_keeps_the_sessions_key() -> None:
    endpoint = make_endpoint()
    Session.objects.update(ssh_public_key="ssh-ed25519 AAAA")
    services.close(endpoint, actor=endpoint.session.owner)
    assert Session.objects.get().ssh_public_key == "ssh-ed25519 AAAA"


def test_closing_ends_all_access() -> None:
    endpoint = make_endpoint(is_public=True, listen_port=10200)
    owner = endpoint.session.owner
    link, _ = services.share(endpoint, expires=timezone.now() + SOON, actor=owner)
    services.close(endpoint, actor=owner)
    services.close(endpoint, actor=owner)
    endpoint.refresh_from_db()
    link.refresh_from_db()
    assert (endpoint.state, endpoint.is_public, endpoint.listen_port, endpoint.epoch) == ("CLOSED", False, None, 2)
    assert link.revoked_at
    assert events(endpoint)[-1] == "Closed"


@pytest.fixture
def pool(settings: Settings) -> None:
    settings.COMPUTE_APP_PORTS = POOL


@pytest.mark.loopback
@pytest.mark.usefixtures("pool")
def test_a_free_preferred_port_is_assigned(session: Session) -> None:
    for _ in range(2):
        endpoint, note = services.open_app(session, "p8080", actor=session.owner, preferred_port=SECOND)
        assert (endpoint.listen_port, note) == (SECOND, "")


@pytest.mark.loopback
@pytest.mark.usefixtures("pool")
def test_a_taken_preferred_port_is_replaced(session: Session) -> None:
    make_endpoint(listen_port=FIRST)
    endpoint, note = services.open_app(session, "p8080", actor=session.owner, preferred_port=FIRST)
    assert endpoint.listen_port == SECOND
    assert f"{FIRST} is taken" in note
    assert str(SECOND) in note
    assert note in events(endpoint)[0]


@pytest.mark.loopback
def test_a_port_in_use_by_another_program_is_taken(session: Session, settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as program:
        port = program.getsockname()[1]
        settings.COMPUTE_APP_PORTS = str(port)
        endpoint, note = services.open_app(session, "p8080", actor=session.owner, preferred_port=port)
        assert endpoint.listen_port is None
        assert "All ports for apps are taken" in note
    endpoint, note = services.open_app(session, "p8080", actor=session.owner, preferred_port=port)
    assert (endpoint.listen_port, note) == (port, "")


@pytest.mark.loopback
@pytest.mark.usefixtures("pool")
def test_a_port_outside_the_pool_is_replaced(session: Session) -> None:
    endpoint, note = services.open_app(session, "p8080", actor=session.owner, preferred_port=22)
    assert endpoint.listen_port in (FIRST, SECOND)
    assert POOL in note


@pytest.mark.usefixtures("pool")
def test_an_exhausted_pool_leaves_the_app_its_address(session: Session) -> None:
    make_endpoint(listen_port=FIRST)
    make_endpoint(listen_port=SECOND)
    endpoint, note = services.open_app(session, "p8080", actor=session.owner, preferred_port=FIRST)
    assert endpoint.listen_port is None
    assert "address alone" in note


@pytest.mark.loopback
@pytest.mark.usefixtures("pool")
def test_the_ports_of_ended_sessions_are_free_again(session: Session) -> None:
    for port in (FIRST, SECOND):
        make_endpoint(session_in(Status.TERMINATED), listen_port=port)
    endpoint, note = services.open_app(session, "p8080", actor=session.owner, preferred_port=FIRST)
    assert (endpoint.listen_port, note) == (FIRST, "")


def test_an_app_needs_no_port_pool(session: Session) -> None:
    endpoint, note = services.open_app(session, "p8080", actor=session.owner, preferred_port=FIRST)
    assert endpoint.listen_port is None
    assert "address alone" in note


@pytest.mark.parametrize("limit", ["MAX_OPEN_IN_SESSION", "MAX_OPEN_OF_OWNER"])
def test_a_user_opens_a_bounded_number_of_ports(session: Session, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, limit, 2)
    for app in ("p8001", "p8002", "p8002"):
        services.open_app(session, app, actor=session.owner)
    with pytest.raises(RejectedError, match="close some"):
        services.open_app(session, "p8003", actor=session.owner)
    services.close(Endpoint.objects.get(app="p8001"), actor=session.owner)
    services.open_app(session, "p8003", actor=session.owner)
    with pytest.raises(RejectedError):
        services.open_app(session, "p8001", actor=session.owner)


def test_a_cluster_in_the_network_of_hosts_offers_no_apps(session: Session) -> None:
    Cluster.objects.create(pk=session.pk, size=2, first_port=20_000)
    Session.objects.filter(pk=session.pk).update(cluster=session.pk, address=None)
    with pytest.raises(RejectedError) as refused:
        services.open_app(session, "p8080", actor=session.owner)
    assert refused.value.errors == {"app": routes.HOST_NETWORK}
    assert routes.obstacle(Session.objects.get(pk=session.pk)) == routes.HOST_NETWORK
