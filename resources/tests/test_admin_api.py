"""Administration by the API: for superadmins alone, validated and recorded as in the administration."""

from typing import Any

import pytest
from django.contrib import admin
from django.core import mail
from django.db import connection
from django.http import HttpRequest
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import get_resolver

import accounts.signing_in.mail
from accounts.models import ApiToken, AuditEntry, ResourcePolicy, SshKey, User
from folders.models import StorageRoot
from resources.admin_api.base import SaveRecords
from resources.amounts.units import GIB, MIB
from resources.models import BuildState, Host, Image, ImageBuild, ImagePull, Preset, Registry, ResourceGroup
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.api import CheckedClient, client_of
from tests.factories import (
    make_gpu,
    make_group,
    make_host,
    make_image,
    make_policy,
    make_preset,
    make_project,
    make_session,
    make_user,
    run_session,
    session_in,
)

pytestmark = pytest.mark.django_db

API = "/api/v1/admin"
LISTS = (
    *(
        "audit-log",
        "elastic-hosts",
        "elastic-pools",
        "gpu-weights",
        "hosts",
        "idle-rules",
        "images",
        "policies",
        "presets",
        "registries",
        "resource-groups",
        "ssh-keys",
    ),
    *("storage-roots", "tokens", "users"),
)
# What a form of the administration has beside what the API writes, by model.
ELSEWHERE: dict[str, set[str]] = {"User": {"password1", "password2", "usable_password"}}


@pytest.fixture(autouse=True)
def _mails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts.signing_in.mail, "send_soon", accounts.signing_in.mail.send_now)


@pytest.fixture
def root() -> User:
    return make_user(email="root@example.org", is_superuser=True)


@pytest.fixture
def client(root: User) -> CheckedClient:
    return client_of(root)


def acts() -> list[tuple[str, str, dict[str, list[str | None]]]]:
    return [(each.action, each.object_text, each.changes) for each in AuditEntry.objects.order_by("id")]


def views() -> dict[str, type[SaveRecords[Any]]]:
    """The views that save rows, by the name of their model."""
    found = {}
    stack = [*get_resolver().url_patterns]
    while stack:
        each = stack.pop()
        stack += getattr(each, "url_patterns", [])
        view = getattr(getattr(each, "callback", None), "cls", None)
        if view is not None and issubclass(view, SaveRecords):
            found[view.queryset.model.__name__] = view
    return found


@pytest.mark.parametrize("name", LISTS)
def test_only_superadmins_administer(name: str, client: CheckedClient) -> None:
    assert client_of().get(f"{API}/{name}/").status_code == 401
    assert client_of(make_user()).get(f"{API}/{name}/").status_code == 403
    assert client.get(f"{API}/{name}/").status_code == 200


def test_the_api_writes_every_field_of_the_administration(root: User) -> None:
    request: HttpRequest = RequestFactory().get("/")
    request.user = root
    saved = views()
    assert saved.keys() >= {
        "User",
        "ResourcePolicy",
        "ResourceGroup",
        "Host",
        "Image",
        "Registry",
        "GpuWeight",
        "Preset",
        "IdleRule",
    }
    for model, model_admin in admin.site._registry.items():
        if (view := saved.get(model.__name__)) is None:
            continue
        serializer: Any = view.serializer_class
        sources = set(serializer().writable().values())
        form = model_admin.get_form(request, None, change=True)
        missing = set(form.base_fields) - sources - ELSEWHERE.get(model.__name__, set())
        assert not missing, f"{model.__name__}: name {missing} in {serializer.__name__}"


def test_a_user_is_made_changed_and_deleted(client: CheckedClient) -> None:
    make_policy(name="students")
    group = make_group(name="lab", open_to_all=False)
    body = {"email": "Ada@Example.org", "policy": "students", "resource_groups": ["lab"]}
    made = client.post(f"{API}/users/", body)
    assert made.status_code == 201, made.content
    ada = User.objects.get(email="ada@example.org")
    assert (ada.has_usable_password(), list(group.users.all()), ada.policy.name) == (False, [ada], "students")
    url = f"{API}/users/{ada.pk}/"
    changed = client.patch(url, {"share_weight": 200, "password": "a long enough phrase"}).json()
    assert (changed["share_weight"], changed["email"]) == (200, "ada@example.org")
    ada.refresh_from_db()
    assert ada.check_password("a long enough phrase")
    assert list(group.users.all()) == [ada]
    assert client.delete(url).status_code == 204
    assert [(action, text) for action, text, _ in acts()] == [
        (action, "ada@example.org") for action in ("added", "changed", "deleted")
    ]
    assert acts()[1][2] == {"share_weight": [None, "200"], "password": ["***", "***"]}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"email": "ROOT@example.org"}, "email"),
        ({"email": "nobody"}, "email"),
        ({"email": "b@example.org", "password": "12345678"}, "password"),
        ({"email": "b@example.org", "policy": "none"}, "policy"),
        ({"email": "b@example.org", "policy": "a\0b"}, "policy"),
        ({"email": "b@example.org", "resource_groups": [1]}, "resource_groups"),
        ({"email": "b@example.org", "first_name": 3.10}, "first_name"),
        ({"email": "b@example.org", "share_weight": 0}, "share_weight"),
        ({"email": "b@example.org", "nickname": "b"}, "nickname"),
        ({"email": "b@example.org", "projects": []}, "projects"),
        ({}, "email"),
    ],
)
def test_a_wrong_user_is_refused_at_its_field(client: CheckedClient, body: dict[str, Any], field: str) -> None:
    refused = client.post(f"{API}/users/", body)
    assert (refused.status_code, list(refused.json()["errors"])) == (400, [field])
    assert not AuditEntry.objects.exists()


def test_nobody_locks_themselves_out(client: CheckedClient, root: User) -> None:
    url = f"{API}/users/{root.pk}/"
    assert client.patch(url, {"is_superadmin": False}).json()["errors"].keys() == {"is_superadmin"}
    assert client.post(f"{url}disable/", {}).json()["errors"].keys() == {"is_active"}
    assert client.delete(url).status_code == 400


def test_a_disabled_user_loses_what_runs_if_asked(client: CheckedClient) -> None:
    session = run_session()
    url = f"{API}/users/{session.owner.pk}/disable/"
    assert client.post(url, {}).json()["is_active"] is False
    session.refresh_from_db()
    assert session.status == "RUNNING"
    client.post(url, {"end_sessions": True})
    session.refresh_from_db()
    assert session.status == "TERMINATING"
    assert [
        (action, {key: value for key, value in changes.items() if key in ("is_active", "status")})
        for action, _, changes in acts()
    ] == [
        ("disable", {"is_active": ["True", "False"]}),
        ("end", {"status": ["RUNNING", "TERMINATING"]}),
    ]


def test_a_policy_has_amounts_and_spans(client: CheckedClient) -> None:
    body = {"name": "students", "memory": "8g", "fgpu": 0.5, "max_lifetime": "4h", "cpu": None}
    made = client.post(f"{API}/policies/", body).json()
    assert (made["memory"], made["fgpu"], made["max_lifetime"], made["cpu"]) == (8 * GIB, "0.5", 14400, None)
    policy = ResourcePolicy.objects.get(name="students")
    assert (policy.fgpu, policy.max_folders) == (500, 20)
    url = f"{API}/policies/{policy.pk}/"
    assert client.patch(url, {"max_lifetime": 59}).json()["errors"].keys() == {"max_lifetime"}
    assert client.patch(url, {"max_lifetime": None, "memory": 7}).json()["max_lifetime"] is None
    assert acts()[-1] == ("changed", "students", {"max_lifetime": ["4:00:00", None], "memory": [str(8 * GIB), "7"]})
    make_user(policy=policy)
    refused = client.delete(url)
    assert (refused.status_code, refused.json()["code"]) == (409, "in_use")
    assert len(acts()) == 2, "a deletion that failed is not recorded"


def test_a_change_without_effect_is_not_recorded(client: CheckedClient) -> None:
    policy = make_policy(cpu=4)
    assert client.patch(f"{API}/policies/{policy.pk}/", {"cpu": 4}).status_code == 200
    assert not AuditEntry.objects.exists()


def test_a_group_says_what_a_change_means(client: CheckedClient) -> None:
    user, project = make_user(email="ada@example.org"), make_project(name="vision")
    body = {"name": "lab", "fgpu_per_gpu": 4, "users": [user.email], "projects": [project.name], "max_lifetime": "2d"}
    made = client.post(f"{API}/resource-groups/", body)
    assert made.status_code == 201, made.content
    group = ResourceGroup.objects.get(name="lab")
    assert (list(group.users.all()), list(group.projects.all()), group.placement) == ([user], [project], "pack")
    make_session(resource_group=group, owner=user)
    url = f"{API}/resource-groups/{group.pk}/"
    changed = client.patch(url, {"users": [], "is_active": False}).json()
    assert [text[:22] for text in changed["consequences"]] == ["1 session waits here, ", "1 session waits here w"]
    assert acts()[-1][2] == {"users": ["ada@example.org", None], "is_active": ["True", "False"]}
    assert client.patch(url, {"allow_interactive": False, "allow_batch": False}).json()["errors"].keys() == {
        "allow_batch"
    }


def test_the_kind_stays_while_sessions_wait_for_devices(client: CheckedClient) -> None:
    group, other = make_group(name="lab"), make_group()
    waiting = [
        make_session(resource_group=group, fgpu=1000),
        make_session(resource_group=other, group_choices=[other.pk, group.pk], fgpu=1000),
        make_session(resource_group=group, fgpu=0),
    ]
    url, change = f"{API}/resource-groups/{group.pk}/", {"accelerator": "amd.com/gpu"}
    assert client.patch(url, change).json()["errors"] == {
        "accelerator": ["2 sessions hold devices of this group or wait for some; end them first."]
    }
    assert client.patch(url, {"description": "x"}).status_code == 200
    for session in waiting[:2]:
        session.move_to(Status.CANCELLED, Reason.USER_REQUEST, "")
    assert client.patch(url, change).json()["accelerator"] == "amd.com/gpu"


def test_what_is_leased_does_not_move(client: CheckedClient) -> None:
    session = run_session(fgpu=500)
    host, other = session.host, make_group()
    assert host is not None
    moved = client.patch(f"{API}/hosts/{host.pk}/", {"resource_group": other.name})
    assert moved.json()["errors"].keys() == {"resource_group"}
    cut = client.patch(f"{API}/resource-groups/{session.resource_group.pk}/", {"fgpu_per_gpu": 7})
    assert cut.json()["errors"].keys() == {"fgpu_per_gpu"}


def test_a_host_is_cordoned_and_taken_back(client: CheckedClient) -> None:
    host = make_host(name="gpu1", gpus=1)
    url = f"{API}/hosts/{host.pk}/"
    shown = client.patch(url, {"is_cordoned": True, "cordon_reason": "new disk"}).json()
    assert (shown["is_cordoned"], shown["cordon_reason"], len(shown["gpus"])) == (True, "new disk", 1)
    assert client.patch(url, {"is_cordoned": False}).json()["cordon_reason"] == ""
    assert client.patch(url, {"status": "LOST"}).json()["errors"].keys() == {"status"}
    assert client.post(f"{API}/hosts/", {"name": "gpu2"}).status_code == 405
    assert acts()[0][2] == {"is_cordoned": ["False", "True"], "cordon_reason": [None, "new disk"]}
    assert client.delete(url).status_code == 204
    assert not Host.objects.exists()


@pytest.mark.parametrize("path", ["row1", "row1/rack-3", "a.b/c_d/3/4/5/6/7/8", ""])
def test_a_host_is_told_where_it_stands(path: str, client: CheckedClient) -> None:
    host = make_host()
    assert client.patch(f"{API}/hosts/{host.pk}/", {"topology": path}).json()["topology"] == path
    assert client.get("/api/v1/hosts/").json()["results"][0]["topology"] == path


@pytest.mark.parametrize("path", ["/row1", "row1/", "row1//rack3", "row 1", "a,b", "1/2/3/4/5/6/7/8/9", "x" * 201])
def test_a_path_that_is_none_is_refused(path: str, client: CheckedClient) -> None:
    errors = client.patch(f"{API}/hosts/{make_host().pk}/", {"topology": path}).json()["errors"]
    assert errors.keys() == {"topology"}
    assert ("names of letters" in errors["topology"][0]) == (len(path) <= 200)


def test_a_preset_is_checked_as_a_whole(client: CheckedClient) -> None:
    group = make_group(name="lab")
    body = {"name": "small", "resource_group": "lab", "cpu": 2, "memory": "4g", "fgpu": "0.25"}
    assert client.post(f"{API}/presets/", body).status_code == 201
    preset = Preset.objects.get()
    assert (preset.group, preset.memory, preset.shared_memory, preset.fgpu) == (group, 4 * GIB, 64 * MIB, 250)
    assert client.post(f"{API}/presets/", body).status_code == 400
    refused = client.patch(f"{API}/presets/{preset.pk}/", {"shared_memory": "5g"})
    assert refused.json()["errors"].keys() == {"shared_memory"}
    assert client.get(f"{API}/presets/?resource_group=lab&search=SMA").json()["count"] == 1
    assert client.get(f"{API}/presets/?search=large").json()["count"] == 0


def test_a_gpu_model_is_given_a_weight(client: CheckedClient) -> None:
    make_gpu(name="NVIDIA A100")
    body = {"model": "NVIDIA A100", "weight": "2.5"}
    made = client.post(f"{API}/gpu-weights/", body)
    assert (made.status_code, made.json()["hint"], made.json()["weight"]) == (201, "", "2.50")
    again = client.post(f"{API}/gpu-weights/", body)
    assert (again.status_code, again.json()["errors"].keys()) == (400, {"model"})
    other = client.post(f"{API}/gpu-weights/", {"model": "NVIDIA H100", "weight": "100"}).json()
    assert other["hint"] == "No host reports this model. Hosts report: NVIDIA A100."
    assert client.patch(f"{API}/gpu-weights/{other['id']}/", {"weight": "0.01"}).json()["weight"] == "0.01"
    assert client.delete(f"{API}/gpu-weights/{other['id']}/").status_code == 204
    assert [row[0] for row in acts()] == ["added", "added", "changed", "deleted"]


@pytest.mark.parametrize("weight", ["0", "-1", "0.001", "0.005", "100.01", "1e9", "NaN", "Infinity", "fast", None, []])
def test_a_weight_out_of_bounds_is_refused(weight: object, client: CheckedClient) -> None:
    refused = client.post(f"{API}/gpu-weights/", {"model": "NVIDIA A100", "weight": weight})
    assert (refused.status_code, refused.json()["errors"].keys()) == (400, {"weight"})


def test_an_image_has_apps(client: CheckedClient) -> None:
    app = {"name": "docs", "title": "Documentation", "port": 8000, "command": "serve\r\n--all", "icon": "book"}
    body = {"environment": "Any", "version": "1", "reference": "any/image:1", "min_memory": "1g", "apps": [app]}
    made = client.post(f"{API}/images/", body)
    assert made.status_code == 201, made.content
    image = Image.objects.get()
    assert [(each.name, each.command) for each in image.apps.all()] == [("docs", "serve\n--all")]
    url = f"{API}/images/{image.pk}/"
    assert client.patch(url, {"min_gpu_memory": "20g"}).json()["min_gpu_memory"] == 20 * GIB
    changed = client.patch(url, {"version": "2"}).json()
    assert (changed["apps"][0]["title"], changed["min_gpu_memory"]) == ("Documentation", 20 * GIB)
    twice = client.patch(url, {"apps": [app, {**app, "title": "Again"}]})
    assert twice.status_code == 400
    bad = client.patch(url, {"apps": [{**app, "name": "p80"}]})
    assert bad.json()["errors"].keys() == {"apps.0.name"}
    assert image.apps.count() == 1
    assert client.patch(url, {"apps": []}).json()["apps"] == []
    assert client.patch(url, {"reference": "not a reference"}).json()["errors"].keys() == {"reference"}


def test_images_are_built_again_and_pulled(client: CheckedClient) -> None:
    image, host = make_image(), make_host(name="gpu1")
    url = f"{API}/images/{image.pk}/"
    assert client.post(f"{url}build/").json()["code"] == "not_possible"
    ImageBuild.objects.create(image=image, state=BuildState.FAILED)
    assert client.post(f"{url}build/").json()["build"]["state"] == "QUEUED"
    assert client.post(f"{url}pull/", {"hosts": ["gpu1"]}).json()["pulls"][0]["host"] == "gpu1"
    assert ImagePull.objects.get().host == host
    assert client.post(f"{url}pull/", {"hosts": ["gpu2"]}).json()["errors"].keys() == {"hosts"}
    assert [action for action, _, _ in acts()] == ["build_again", "pull"]


def test_a_registry_shows_no_password(client: CheckedClient) -> None:
    body = {"name": "Lab", "address": "registry.example.com", "username": "bot", "password": "a secret"}
    made = client.post(f"{API}/registries/", body)
    assert made.json()["has_password"] is True
    assert b"a secret" not in made.content
    url = f"{API}/registries/{Registry.objects.get().pk}/"
    assert client.patch(url, {"username": "other"}).json()["errors"].keys() == {"password"}
    assert client.patch(url, {"allows_http": True}).json()["has_password"] is True
    assert acts()[0][2]["encrypted_password"] == [None, "***"]
    assert "a secret" not in str(acts())


def test_an_idle_rule_is_previewed(client: CheckedClient) -> None:
    make_group(name="lab")
    body = {"name": "idle", "idle_timeout": "1h", "resource_groups": ["lab"], "action": "park"}
    made = client.post(f"{API}/idle-rules/", body).json()
    assert (made["idle_timeout"], made["resource_groups"], made["is_enabled"]) == (3600, ["lab"], False)
    url = f"{API}/idle-rules/{made['id']}/"
    assert client.patch(url, {"idle_timeout": None}).status_code == 400
    assert client.patch(url, {"low_use_window": "1h", "low_use_cpu_percent": 5}).status_code == 200
    assert client.get(f"{url}preview/").json()["judged"] == 0


def test_a_storage_root_with_folders_stays(client: CheckedClient, tmp_path: Any) -> None:
    body = {"name": "fast", "path": str(tmp_path)}
    made = client.post(f"{API}/storage-roots/", body).json()
    url = f"{API}/storage-roots/{made['id']}/"
    assert client.post(f"{url}mark/").status_code == 200
    assert client.post(f"{url}make-default/").json()["is_default"] is True
    StorageRoot.objects.get().folders.create(owner=make_user(), name="mnist")
    assert client.patch(url, {"path": "/elsewhere"}).json()["errors"].keys() == {"path"}
    assert client.patch(url, {"is_enabled": False}).json()["folders"] == 1
    assert client.delete(url).status_code == 409
    assert client.post(f"{API}/storage-roots/", {"name": "b", "path": "relative"}).json()["errors"].keys() == {"path"}


def test_tokens_and_keys_of_all_are_revoked(client: CheckedClient) -> None:
    user = make_user(email="ada@example.org")
    token, text = ApiToken.objects.issue(user, name="laptop")
    key = SshKey.objects.create(owner=user, title="k", text="ssh-ed25519 AAAA", fingerprint="SHA256:abc")
    found = client.get(f"{API}/tokens/?user=ADA@example.org").json()
    assert [(each["name"], each["user"]) for each in found["results"]] == [("laptop", "ada@example.org")]
    assert text not in str(found)
    assert client.delete(f"{API}/tokens/{token.uid}/").status_code == 204
    assert client.delete(f"{API}/ssh-keys/{key.pk}/").status_code == 204
    assert not ApiToken.objects.filter(user=user).exists()
    assert acts()[0][2]["digest"] == ["***", None]


def test_the_audit_log_is_read_by_page_and_filter(client: CheckedClient) -> None:
    for cpu in (1, 2, 3):
        client.post(f"{API}/policies/", {"name": f"p{cpu}", "cpu": cpu})
    page = client.get(f"{API}/audit-log/?page_size=2").json()
    assert [each["object_text"] for each in page["results"]] == ["p3", "p2"]
    rest = client.get(page["next"]).json()
    assert [each["object_text"] for each in rest["results"]] == ["p1"]
    assert rest["results"][0]["changes"]["cpu"] == [None, "1"]
    assert rest["results"][0]["address"] == "127.0.0.1"
    assert not client.get(f"{API}/audit-log/?actor=nobody@example.org").json()["results"]
    assert client.delete(f"{API}/audit-log/{rest['results'][0]['id']}/").status_code == 405


def test_a_session_of_a_dead_host_is_ended_by_force(client: CheckedClient) -> None:
    session = run_session()
    url = f"{API}/sessions/{session.pk}/force-end/"
    assert client_of(session.owner).post(url).status_code == 403
    assert client.post(url).status_code == 204
    assert Session.objects.get().status == "TERMINATED"
    assert client.post(url).status_code == 400
    assert [
        (action, {key: value for key, value in changes.items() if key in ("is_active", "status")})
        for action, _, changes in acts()
    ] == [("force end", {"status": ["RUNNING", "TERMINATED"]})]


def test_a_session_returns_to_the_queue(client: CheckedClient) -> None:
    session = session_in(Status.SCHEDULED)
    url = f"{API}/sessions/{session.pk}/requeue/"
    assert client_of(session.owner).post(url).status_code == 403
    assert client.post(url).status_code == 204
    session.refresh_from_db()
    assert session.status == "PENDING"
    refused = client.post(url)
    assert (refused.status_code, refused.json()["detail"]) == (400, "It holds no place on a host.")


def test_users_are_imported_whole_or_not_at_all(client: CheckedClient) -> None:
    ResourcePolicy.default()
    url, table = f"{API}/users/import/", "email,policy\nada@example.org,default\nmina@example.org,"
    shown = client.post(url, {"csv": f"{table}nothing"}).json()
    assert (shown["is_applied"], shown["new_count"], shown["error_count"]) == (False, 2, 1)
    assert shown["rows"][1]["errors"].keys() == {"policy"}
    refused = client.post(url, {"csv": f"{table}nothing", "apply": True})
    assert (refused.status_code, refused.json()["errors"].keys()) == (400, {"csv"})
    assert not User.objects.filter(email="ada@example.org").exists()
    assert client.post(url, {"csv": f"{table}default", "apply": True}).json()["is_applied"] is True
    assert len(mail.outbox) == 2
    assert client_of(make_user()).post(url, {"csv": table}).status_code == 403


def test_superadmins_see_all_announcements(client: CheckedClient) -> None:
    later = {"text": "Power off", "starts_at": "2999-01-01T00:00:00Z"}
    made = client.post("/api/v1/announcements/", later).json()
    assert client.post("/api/v1/announcements/", {**later, "colour": "red"}).json()["errors"].keys() == {"colour"}
    other = client_of(make_user())
    assert client.get("/api/v1/announcements/").json()["count"] == 0
    assert client.get("/api/v1/announcements/?scope=all").json()["count"] == 1
    assert other.get("/api/v1/announcements/?scope=all").status_code == 403
    one = f"/api/v1/announcements/{made['id']}/"
    assert (client.get(one).status_code, other.get(one).status_code) == (200, 404)


@pytest.mark.parametrize("name", ["users", "images", "hosts", "resource-groups", "presets", "policies", "tokens"])
def test_lists_take_a_constant_number_of_queries(name: str, client: CheckedClient) -> None:
    counts = []
    for rows in (1, 5):
        for _ in range(rows):
            host = make_host(gpus=2)
            make_preset(group=host.group)
            user = make_user()
            make_project(user)
            host.group.users.add(user)
            ImagePull.objects.create(image=make_image(), host=host)
            ApiToken.objects.issue(user)
        with CaptureQueriesContext(connection) as queries:
            assert client.get(f"{API}/{name}/").status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]
