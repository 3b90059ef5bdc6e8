"""Who may do what: every address and verb of pages and API as each kind of user, held against access_matrix.txt.

The addresses come from the URL patterns, so that a new one without a row fails here. All arguments name things of one
owner: a session of a project, a folder, a key. A request is empty, and undone: what is checked is who is let in (2xx, a
3xx of the page itself, or 400 and 409 for what the empty request lacks), sent to the sign-in page (login, 401), or
told that there is nothing (404, 403). "-" is a verb that the address does not have, "=" is as the user.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from django.conf import settings
from django.core.cache import cache
from django.db import transaction
from django.test import Client
from django.urls import NoReverseMatch, URLPattern, URLResolver, get_resolver, reverse
from pytest_django import Settings
from rest_framework.test import APIClient

from accounts.models import ApiToken, SshKey, User
from accounts.models.invitations import TOKEN_LENGTH
from arrays.tests.making import make_array
from deployments.access import tokens as deployment_tokens
from deployments.scaling import services as scaling
from deployments.tests.making import make_deployment
from folders.sharing import folders as folder_services
from folders.storage import paths as storage
from imports import credentials as import_credentials
from imports.models import Import
from notifications.models import Notification
from notifications.page.routing import websocket_urlpatterns as live_patterns
from pages.deployments.live.routing import websocket_urlpatterns as deployment_patterns
from pages.session_list.live.routing import websocket_urlpatterns as list_patterns
from restapi.client_wheel import wheel
from sessions.models import Conversion
from sessions.projects import services as projects
from sessions.routing import websocket_urlpatterns as session_patterns
from specs.tests.template_rows import make_template
from tests.factories import make_endpoint, make_host, make_image, make_project, make_root, make_user, run_session
from webhooks import services as webhook_services

TABLE: Final = Path(__file__).with_name("access_matrix.txt")
ROLES: Final = ("stranger", "user", "member", "manager", "superadmin", "owner")
# The administration and allauth's pages; streams, and what asks the container, have tests of their own.
OUTSIDE: Final = re.compile(
    r"^(admin:|account_|mfa_|openid_|socialaccount_|accounts:(login|logout)|.*(follow|losses|found-ports|terminal|zip))"
)
WITHOUT_A_THING: Final = ("stranger", "user", "superadmin")  # who differs where an address names nobody's thing
SAME: Final = "="  # as the user
OF_A_SESSION: Final = re.compile(r"^(session-|sessions:|endpoints:)")
FOR_MANAGERS: Final = {
    *("sessions:detail", "sessions:terminate", "sessions:losses", "sessions:spec"),
    *("session-detail", "session-events", "session-place", "session-spec", "session-stats", "session-terminate"),
}
NOTHING_THERE: Final = ("", "^apps/shared/")
VERBS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
NOTHING: Final = "1"

TERMINAL: Final = "sessions/tests/test_terminal.py"
DEPLOYMENT: Final = "pages/tests/test_deployment_live.py"
# Each websocket, with the test that a stranger learns nothing by it.
SOCKETS: Final = {
    "ws/sessions/<str:session_id>/terminal/": f"{TERMINAL}: test_inaccessible_sessions_all_look_the_same",
    "ws/sessions/<str:session_id>/exec/": f"{TERMINAL}: test_only_who_may_operate_a_session_runs_commands",
    "ws/sessions/": "sessions/tests/test_consumers.py: test_a_user_hears_of_their_own_sessions_alone",
    "ws/sessions/list/": "pages/tests/test_list_feed.py: test_counts_are_the_audience_s_own",
    "ws/deployments/<slug:deployment_id>/": f"{DEPLOYMENT}: test_strangers_hear_nothing_of_a_deployment",
    "": "sessions/tests/test_consumers.py: test_an_unknown_websocket_path_is_refused",
}

pytestmark = pytest.mark.django_db


class World:
    """One owner's things, and a user of each kind beside; `label` tells those of a second world from a first one's."""

    def __init__(self, directory: Path, label: str = "") -> None:
        owner, manager, member = make_user(), make_user(), make_user()
        self.users: dict[str, User | None] = {
            **{"stranger": None, "user": make_user(), "member": member, "manager": manager},
            **{"superadmin": make_user(is_superuser=True), "owner": owner},
        }
        project = make_project(owner, member, managers=[manager])
        membership = project.memberships.get(user=member)
        invitation = projects.invite(project, f"kim{label}@example.org", actor=manager)
        host = make_host()
        session = run_session(host=host, owner=owner, project=project)
        make_endpoint(session, app="jupyter")
        directory.mkdir(exist_ok=True)
        root = make_root(host, name=f"data{label}", path=str(directory), is_default=not label)
        storage.prepare_root(root)
        folder = folder_services.create(owner, "mnist", root)
        image = make_image(environment="mine", version="1", reference=f"private/mine{label}:1", owner=owner)
        conversion = Conversion.objects.create(
            session=session, reference=f"private/mine{label}:2", name="mine", tag="2"
        )
        key = SshKey.objects.create(
            owner=owner, title="laptop", text="ssh-ed25519 AAAA", fingerprint=f"SHA256:abc{label}"
        )
        webhook, _ = webhook_services.create(owner, url="https://example.org/", types=["session.running"])
        delivery = webhook_services.send_test(webhook)
        token, _ = ApiToken.objects.issue(owner, name="mine")
        deployment = make_deployment(owner, host=host, project=project)
        opening = deployment_tokens.create_token(deployment, name="shop", actor=owner).token
        scaling.change(deployment, {"max_replicas": 2}, actor=owner)
        rule = scaling.add_rule(deployment, metric="outstanding", target=8, actor=owner)
        credential = import_credentials.add_key(owner, name="hub", host="github.com")
        look = Import.objects.create(
            owner=owner, url="https://github.com/o/r", kind="git", target="LOOK", session=session
        )
        array = make_array(owner, project=project.name, resource_group=host.group.name, tasks="1-2")
        template = make_template(owner)
        self.arguments: dict[str, Any] = {
            **{"array-pk": array.pk, "array_id": array.pk, "index": 1},
            **{"import_id": look.pk, "import-pk": look.pk, "importcredential-pk": credential.pk},
            **{"credential_id": credential.pk},
            **{"session_id": session.pk, "session-pk": session.pk, "endpoints:name": "jupyter"},
            **{"folder_id": folder.pk, "folder-pk": folder.pk, "image_id": image.pk, "private-image-pk": image.pk},
            **{"conversion_id": conversion.pk, "key_id": key.pk, "sshkey-pk": key.pk, "overview:name": host.name},
            **{
                "host-drain:name": host.name,
                "uid": token.uid,
                "apitoken-id": token.uid,
                "help:name": "apps",
                "slug": "resources",
            },
            **{"client:name": wheel(settings.COMPUTE_PUBLIC_URL).name, "user_id": owner.pk},
            **{"webhook_id": webhook.pk, "delivery_id": delivery.pk, "webhook-pk": webhook.pk},
            **{"webhookdelivery-pk": delivery.pk},
            **{"deployment_id": deployment.pk, "deployment-pk": deployment.pk, "token_id": opening.pk, "number": 1},
            "rule_id": rule.pk,
            **{"template_id": template.pk, "launchtemplate-pk": template.pk},
            **{
                "project_id": project.pk,
                "project-pk": project.pk,
                "project_pk": project.pk,
                "overview:user_id": owner.pk,
            },
            **{"member_id": membership.pk, "project-member-pk": membership.pk},
            **{"invitation_id": invitation.pk, "project-invitation-pk": invitation.pk},
            **{
                "image-pk": image.pk,
                "admin-pk": "999999999",
                "accountinvitation-pk": "999999999",
                "admin-id": token.uid,
                "upload_id": token.uid,
                "item_id": "a" * 32,
                "app": "jupyter",
                "announcement_id": "999999999",
                "login_id": "999999999",
                "loginsession-pk": "999999999",
                "notification-pk": Notification.objects.filter(user=owner).latest("pk").pk,
                "secret": "x" * 43,
                "token": "x" * TOKEN_LENGTH,
            },
        }

    def argument(self, name: str, key: str) -> Any:
        """Return the value of an argument of the pattern `name`."""
        package, resource = name.partition(":")[0], name.rpartition("-")[0]
        while resource:
            if f"{resource}-{key}" in self.arguments:
                return self.arguments[f"{resource}-{key}"]
            resource = resource.rpartition("-")[0]
        return self.arguments.get(f"{package}:{key}", self.arguments.get(key, NOTHING))


def patterns(
    resolver: URLResolver, namespaces: tuple[str, ...] = (), keys: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[str, ...], URLPattern]]:
    """Yield name, arguments and pattern of every address, those of the including patterns counted.

    One without a name fails, but for those of Django's administration, and those at which there is nothing.
    """
    for each in resolver.url_patterns:
        regex = getattr(each.pattern, "regex", re.compile(""))
        own = (*keys, *(tuple(each.pattern.converters) or tuple(regex.groupindex)))
        if isinstance(each, URLResolver):
            yield from patterns(each, (*namespaces, each.namespace) if each.namespace else namespaces, own)
        elif each.name and "format" not in own:
            yield ":".join((*namespaces, each.name)), own, each
        elif not each.name and "admin" not in namespaces:
            assert str(each.pattern) in NOTHING_THERE, f"name the address {each.pattern}, so that it has its rows"


def verbs(pattern: URLPattern) -> list[str]:
    """Return the verbs to try: those of an API view, and GET and POST of a page."""
    view: Any = pattern.callback
    if actions := getattr(view, "actions", None):
        return [verb for verb in VERBS if verb.lower() in actions]
    if cls := getattr(view, "cls", None):
        return [verb for verb in VERBS if hasattr(cls, verb.lower())]
    return ["GET", "POST"]


def outcome(status: int, location: str) -> str:
    """Return what the table says of an answer."""
    if status == 405:
        return "-"
    return "login" if status == 302 and "/sign-in/" in location else str(status)


def ask(client: Any, verb: str, path: str) -> str:
    """Send an empty request, undo what it did, and return its outcome."""
    cookies = client.cookies.copy()
    with transaction.atomic():
        answer = getattr(client, verb.lower())(path)
        transaction.set_rollback(True)
    client.cookies = cookies
    return outcome(answer.status_code, answer.headers.get("Location", ""))


def table() -> dict[str, list[str]]:
    """Return the stored outcomes by verb and name."""
    return {f"{verb} {name}": rest for verb, name, *rest in map(str.split, TABLE.read_text().splitlines()[1:])}


def test_every_address_has_a_row_in_the_access_matrix() -> None:
    names = {name for name, _, _ in patterns(get_resolver()) if not OUTSIDE.match(name)}
    assert names == {key.partition(" ")[2] for key in table()}, f"add what is missing to {TABLE.name}"


def test_every_websocket_has_its_tests_of_strangers() -> None:
    routes = [*list_patterns, *live_patterns, *deployment_patterns, *session_patterns]
    assert {str(route.pattern) for route in routes} == SOCKETS.keys(), "name the test that strangers hear nothing"
    for reference in SOCKETS.values():
        file, _, test = reference.partition(": ")
        assert f"def {test}(" in (TABLE.parent.parent / file).read_text(), reference


@pytest.mark.long
def test_each_kind_of_user_is_let_in_by_the_matrix(tmp_path: Path, settings: Settings) -> None:
    settings.COMPUTE_API_REQUESTS_PER_MINUTE = 100_000
    world = World(tmp_path)
    pages, apis = {}, {}
    for role, user in world.users.items():
        pages[role], apis[role] = Client(raise_request_exception=False), APIClient(raise_request_exception=False)
        if user is not None:
            pages[role].force_login(user)
            apis[role].force_authenticate(user)
    found: dict[str, list[str]] = {}
    for name, keys, pattern in patterns(get_resolver()):
        if OUTSIDE.match(name):
            continue
        try:
            path = reverse(name, kwargs={key: world.argument(name, key) for key in keys})
        except NoReverseMatch:
            path = ""
        assert path, f"{name}: name a value for each of {keys} in World.arguments"
        for verb in verbs(pattern):
            cache.clear()
            clients = apis if path.startswith("/api/") else pages
            asked = ROLES if keys else WITHOUT_A_THING
            outcomes = [ask(clients[role], verb, path) if role in asked else SAME for role in ROLES]
            if not set(outcomes[1:]) <= {"-", SAME}:
                found[f"{verb} {name}"] = outcomes
    wanted = table()
    rows = [f"{key} {' '.join(row)}" for key, row in sorted(found.items(), key=lambda pair: pair[0].split()[::-1])]
    assert found == wanted, f"review {TABLE.name} where it differs; it would be:\n" + "\n".join(rows)
    assert not [key for key, row in found.items() if "500" in row]
    for key, row in found.items():
        name = key.partition(" ")[2]
        is_of_one = any(each == name and {"session_id", "pk"} & set(keys) for each, keys, _ in patterns(get_resolver()))
        if OF_A_SESSION.match(name) and is_of_one and name != "endpoints:shared":
            strangers = row[:3] if name in FOR_MANAGERS else row[:4]
            assert {*strangers} <= {"login", "401", "404", "400", "-"}, f"{key}: {row}"
