"""The hand-over from the platform to an app: who gets a ticket, what it is good for, and what voids it on the way."""

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from accounts.models import User
from endpoints import services
from endpoints.handoff import tickets
from proxy.authorization.signing import Grant, digest
from sessions.lifecycle import Reason, Status
from sessions.models import Endpoint, EndpointState, Revocation, ShareLink, Ticket
from tests.factories import PASSWORD, make_endpoint, make_policy, make_user, run_reachable_session
from tests.web import browser_of

pytestmark = pytest.mark.django_db

STATE = digest("what the browser keeps")
SOON = timedelta(hours=1)


@pytest.fixture
def endpoint() -> Endpoint:
    return make_endpoint()


@pytest.fixture
def owner(endpoint: Endpoint) -> User:
    return endpoint.session.owner


@pytest.fixture
def browser(owner: User) -> Client:
    return browser_of(owner)


def authorize(browser: Client, endpoint: Endpoint | str, **query: str) -> HttpResponse:
    label = endpoint if isinstance(endpoint, str) else endpoint.label
    response: Any = browser.get("/apps/authorize", {"h": label, "s": STATE, "next": "/tree?a=1"} | query)
    return response  # type: ignore[no-any-return]


def ticket_in(response: HttpResponse) -> str:
    assert response.status_code == 303
    return parse_qs(urlsplit(response["Location"]).query)["t"][0]


def redeem(browser: Client, endpoint: Endpoint) -> tuple[Grant, str] | None:
    return tickets.redeem(ticket_in(authorize(browser, endpoint)), endpoint.label, STATE)


def share(endpoint: Endpoint) -> tuple[ShareLink, str]:
    return services.share(endpoint, expires=timezone.now() + SOON, actor=endpoint.session.owner)


def visit(browser: Client, secret: str) -> HttpResponse:
    response: Any = browser.post(f"/apps/shared/{secret}")
    return response  # type: ignore[no-any-return]


def test_the_owner_gets_a_private_ticket(browser: Client, endpoint: Endpoint) -> None:
    response = authorize(browser, endpoint)
    ticket = ticket_in(response)
    assert response["Location"] == f"http://{endpoint.label}.apps.localhost:8000/.gp/callback?t={ticket}"
    assert "no-store" in response["Cache-Control"]
    assert response["Referrer-Policy"] == "no-referrer"
    assert ticket not in str(Ticket.objects.values().get())


def test_a_ticket_grants_its_endpoint_for_twelve_hours(browser: Client, endpoint: Endpoint, owner: User) -> None:
    redeemed = redeem(browser, endpoint)
    assert redeemed
    grant, path = redeemed
    login = digest(str(browser.session.session_key))
    assert (grant.label, grant.epoch, grant.user, grant.login) == (endpoint.label, endpoint.epoch, owner.pk, login)
    assert grant.expires_at - grant.issued_at == 12 * 3600
    assert path == "/tree?a=1"


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example/",
        "/\\evil.example/",
        "https://evil.example/",
        "/\t/evil.example/",
        "/\n/evil.example/",
        "/a\r\nSet-Cookie: a=b",
        "evil",
        "",
        "/ä",
        "/" + "a" * 2000,
        "/\0",
    ],
)
def test_a_foreign_return_path_is_replaced(browser: Client, endpoint: Endpoint, path: str) -> None:
    ticket_in(authorize(browser, endpoint, next=path))
    assert Ticket.objects.get().next == "/"


@pytest.mark.parametrize("state", ["", "x", "g" * 64, "a" * 63, "A" * 64])
def test_no_ticket_is_issued_without_a_state_digest(browser: Client, endpoint: Endpoint, state: str) -> None:
    assert authorize(browser, endpoint, s=state).status_code == 400
    assert not Ticket.objects.exists()


def test_another_users_app_does_not_exist(endpoint: Endpoint) -> None:
    assert authorize(browser_of(make_user()), endpoint).status_code == 404
    assert not Ticket.objects.exists()


@pytest.mark.parametrize("label", ["", "p8080", "p8080--unknownunknownu", "x--y", "P8080--aaaaaaaaaaaaaaaa", "\0"])
def test_a_malformed_label_does_not_exist(browser: Client, label: str) -> None:
    assert authorize(browser, label).status_code == 404


def test_an_anonymous_user_signs_in_and_returns(endpoint: Endpoint, owner: User) -> None:
    client = Client()
    response = authorize(client, endpoint)
    assert response.status_code == 302
    sign_in = response["Location"]
    assert sign_in.startswith("/accounts/sign-in/?next=/apps/authorize")
    back: Any = client.post(sign_in, {"login": owner.email, "password": PASSWORD})
    back = client.get(back["Location"])
    assert tickets.redeem(ticket_in(back), endpoint.label, STATE)


def test_a_superadmins_access_is_recorded(endpoint: Endpoint) -> None:
    admin = make_user(is_superuser=True)
    assert redeem(browser_of(admin), endpoint)
    assert [(event.what, event.actor) for event in endpoint.events.all()] == [("Used by a superadmin", admin)]
    event = endpoint.session.events.get(reason=Reason.ENTERED)
    assert (event.detail, event.actor) == (f"{admin} opened the app {endpoint.title}.", admin)


@pytest.mark.parametrize("state", [EndpointState.STARTING, EndpointState.FAILED])
def test_an_unready_app_says_so_at_its_own_address(browser: Client, endpoint: Endpoint, state: EndpointState) -> None:
    Endpoint.objects.update(state=state.value)
    assert tickets.redeem(ticket_in(authorize(browser, endpoint)), endpoint.label, STATE)


def test_a_closed_app_redirects_to_its_page(browser: Client, endpoint: Endpoint) -> None:
    Endpoint.objects.update(state=EndpointState.CLOSED.value)
    response = authorize(browser, endpoint)
    assert (response.status_code, response["Location"]) == (302, f"/sessions/{endpoint.session_id}/apps/p8080/")


def test_a_ticket_opens_once(browser: Client, endpoint: Endpoint) -> None:
    ticket = ticket_in(authorize(browser, endpoint))
    assert tickets.redeem(ticket, endpoint.label, STATE)
    assert tickets.redeem(ticket, endpoint.label, STATE) is None


def test_a_ticket_is_consumed_at_any_endpoint(browser: Client, endpoint: Endpoint) -> None:
    other = make_endpoint(endpoint.session, app="p9090", port=9090)
    ticket = ticket_in(authorize(browser, endpoint))
    assert tickets.redeem(ticket, other.label, STATE) is None
    assert tickets.redeem(ticket, endpoint.label, STATE) is None


def test_a_ticket_is_void_in_another_browser(browser: Client, endpoint: Endpoint) -> None:
    ticket = ticket_in(authorize(browser, endpoint))
    assert tickets.redeem(ticket, endpoint.label, digest("what another browser keeps")) is None


def test_an_unknown_ticket_is_void(endpoint: Endpoint) -> None:
    assert tickets.redeem("x" * 43, endpoint.label, STATE) is None


def test_a_ticket_expires_after_thirty_seconds(browser: Client, endpoint: Endpoint) -> None:
    ticket = ticket_in(authorize(browser, endpoint))
    assert Ticket.objects.get().expires_at <= timezone.now() + timedelta(seconds=30)
    Ticket.objects.update(expires_at=timezone.now())
    assert tickets.redeem(ticket, endpoint.label, STATE) is None


def test_signing_out_voids_tickets_and_cookies(browser: Client, endpoint: Endpoint) -> None:
    ticket, login = ticket_in(authorize(browser, endpoint)), digest(str(browser.session.session_key))
    browser.post("/accounts/sign-out/")
    assert Revocation.objects.filter(login=login).exists()
    assert tickets.redeem(ticket, endpoint.label, STATE) is None


def test_a_changed_password_voids_all_of_a_users_cookies(browser: Client, endpoint: Endpoint, owner: User) -> None:
    ticket = ticket_in(authorize(browser, endpoint))
    owner.set_password("another long password")
    owner.save()
    assert Revocation.objects.filter(user=owner).exists()
    assert tickets.redeem(ticket, endpoint.label, STATE) is None


def test_a_rotated_login_session_voids_its_cookies(browser: Client, endpoint: Endpoint) -> None:
    ticket, session = ticket_in(authorize(browser, endpoint)), browser.session
    old = digest(str(session.session_key))
    session.cycle_key()
    assert [row.login for row in Revocation.objects.all()] == [old]
    assert tickets.redeem(ticket, endpoint.label, STATE) is None


def test_disabling_a_user_voids_cookies_and_links(browser: Client, endpoint: Endpoint, owner: User) -> None:
    link, secret = share(endpoint)
    visitor = Client()
    visit(visitor, secret)
    given = [ticket_in(authorize(each, endpoint)) for each in (browser, visitor)]
    owner.is_active = False
    owner.save()
    assert Revocation.objects.filter(user=owner).exists()
    assert Revocation.objects.filter(login=link.digest).exists()
    assert [tickets.redeem(ticket, endpoint.label, STATE) for ticket in given] == [None, None]
    assert authorize(browser, endpoint).status_code == 302, "to sign in, which fails"
    assert visit(visitor, secret).status_code == 404


def test_a_former_superadmins_cookies_are_void(endpoint: Endpoint) -> None:
    admin = make_user(is_superuser=True)
    browser = browser_of(admin)
    ticket = ticket_in(authorize(browser, endpoint))
    admin.is_superuser = False
    admin.save()
    assert Revocation.objects.filter(user=admin).exists()
    assert tickets.redeem(ticket, endpoint.label, STATE) is None
    assert authorize(browser, endpoint).status_code == 404


def test_a_deleted_users_cookies_are_void(endpoint: Endpoint) -> None:
    admin = make_user(is_superuser=True)
    browser = browser_of(admin)
    login = digest(str(browser.session.session_key))
    assert redeem(browser, endpoint)
    admin.delete()
    assert Revocation.objects.filter(login=login).exists()


def test_other_changes_of_a_user_void_nothing(browser: Client, owner: User) -> None:
    owner.first_name = "Ada"
    owner.save()
    owner.save(update_fields=["last_login"])
    assert not Revocation.objects.exists()


def test_a_ticket_is_void_once_its_session_ends(browser: Client, endpoint: Endpoint) -> None:
    ticket = ticket_in(authorize(browser, endpoint))
    endpoint.session.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    assert tickets.redeem(ticket, endpoint.label, STATE) is None


def test_a_share_link_opens_its_app_after_a_click(endpoint: Endpoint) -> None:
    link, secret = share(endpoint)
    visitor = Client()
    page: Any = visitor.get(f"/apps/shared/{secret}")
    assert page.status_code == 200
    assert endpoint.session.owner.email in page.content.decode()
    assert authorize(visitor, endpoint).status_code == 302, "looking at the page is not opening"
    clicked = visit(visitor, secret)
    assert (clicked.status_code, clicked["Location"]) == (303, f"http://{endpoint.label}.apps.localhost:8000/")
    redeemed = redeem(visitor, endpoint)
    assert redeemed
    assert (redeemed[0].user, redeemed[0].login) == (0, digest(secret))
    assert redeemed[0].expires_at == link.expires_at.timestamp()
    link.refresh_from_db()
    assert link.last_used_at
    entered = endpoint.session.events.get(reason=Reason.ENTERED)
    assert entered.detail == f"Somebody with a share link opened the app {endpoint.title}."


def test_share_links_end_with_their_owners_password(endpoint: Endpoint) -> None:
    link, secret = share(endpoint)
    owner = endpoint.session.owner
    owner.set_password("another long password")
    owner.save()
    assert Client().get(f"/apps/shared/{secret}").status_code == 404
    link.refresh_from_db()
    assert link.revoked_at


def test_a_foreign_page_cannot_submit_the_share_form(endpoint: Endpoint) -> None:
    _, secret = share(endpoint)
    visitor = Client(enforce_csrf_checks=True)
    assert visit(visitor, secret).status_code == 403
    assert not visitor.cookies.get("gp_share")


def test_a_share_link_opens_no_other_app(endpoint: Endpoint) -> None:
    others = [make_endpoint(endpoint.session, app="p9090", port=9090), make_endpoint()]
    _, secret = share(endpoint)
    visitor = Client()
    visit(visitor, secret)
    assert [authorize(visitor, other).status_code for other in others] == [302, 302]


def test_a_share_link_works_for_other_users(endpoint: Endpoint) -> None:
    _, secret = share(endpoint)
    visitor = browser_of(make_user())
    visit(visitor, secret)
    redeemed = redeem(visitor, endpoint)
    assert redeemed
    assert redeemed[0].user == 0


def revoke(link: ShareLink) -> None:
    services.revoke(link, actor=link.endpoint.session.owner)


def expire(link: ShareLink) -> None:
    ShareLink.objects.update(expires_at=timezone.now())


def forbid(link: ShareLink) -> None:
    owner = link.endpoint.session.owner
    owner.policy = make_policy(allow_public_apps=False)
    owner.save()


@pytest.mark.parametrize("end", [revoke, expire, forbid])
def test_an_expired_share_link_says_so(endpoint: Endpoint, end: Any) -> None:
    link, secret = share(endpoint)
    visitor = Client()
    visit(visitor, secret)
    ticket = ticket_in(authorize(visitor, endpoint))
    end(link)
    assert tickets.redeem(ticket, endpoint.label, STATE) is None
    assert authorize(visitor, endpoint).status_code == 302
    response = visit(visitor, secret)
    assert response.status_code == 404
    assert "expired, or was withdrawn" in response.content.decode()


@pytest.mark.parametrize("secret", ["x", "x" * 43, "", "../authorize", "%00"])
def test_an_unknown_share_link_says_so(secret: str) -> None:
    response: Any = Client().get(f"/apps/shared/{secret}")
    assert response.status_code == 404
    assert "This link" in response.content.decode()


def test_a_share_link_to_a_stopped_app_says_so(endpoint: Endpoint) -> None:
    _, secret = share(endpoint)
    visitor = Client()
    visit(visitor, secret)
    Endpoint.objects.update(state=EndpointState.FAILED.value)
    response = visit(visitor, secret)
    assert (response.status_code, "does not run" in response.content.decode()) == (404, True)


def test_the_share_cookie_is_host_only(endpoint: Endpoint, settings: Settings) -> None:
    _, secret = share(endpoint)
    visitor = Client()
    visit(visitor, secret)
    cookie = visitor.cookies["gp_share"]
    assert (cookie["httponly"], cookie["samesite"], cookie["domain"], cookie["max-age"]) == (True, "Lax", "", 120)
    settings.COMPUTE_HTTPS = settings.SESSION_COOKIE_SECURE = True
    visit(visitor, secret)
    assert visitor.cookies["__Host-gp_share"]["secure"]


def test_an_unreachable_host_redirects_to_the_explanation(browser: Client, owner: User) -> None:
    session = run_reachable_session(owner=owner)
    assert session.host
    session.host.name = "far-away"
    session.host.save()
    assert authorize(browser, make_endpoint(session)).status_code == 302


def test_a_user_disabled_by_bulk_update_is_refused(browser: Client, endpoint: Endpoint, owner: User) -> None:
    ticket = ticket_in(authorize(browser, endpoint))
    User.objects.filter(pk=owner.pk).update(is_active=False)
    assert tickets.redeem(ticket, endpoint.label, STATE) is None


def test_another_users_ticket_is_void(endpoint: Endpoint) -> None:
    ticket = tickets.issue(endpoint, user=make_user(), login=STATE, state=STATE, path="/")
    assert tickets.redeem(ticket, endpoint.label, STATE) is None


def test_a_share_links_ticket_is_for_its_endpoint_only(endpoint: Endpoint) -> None:
    link, _ = share(endpoint)
    other = make_endpoint()
    ticket = tickets.issue(other, user=None, login=link.digest, state=STATE, path="/")
    assert tickets.redeem(ticket, other.label, STATE) is None
