"""The administration: open to superadmins for every model, shut to everybody else."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib import admin
from django.db import connection
from django.db.models import Model
from django.db.models.signals import pre_save
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accounts import audit, invitations
from accounts.models import AccountInvitation, ApiToken, Project, ResourcePolicy, SshKey, User
from endpoints.services import share
from folders.models import Folder, FolderShare, StorageRoot
from resources.image_admin import APP_ICONS
from resources.models import Host, HostStatus, Image, ImagePull, Installation, Preset, Registry, ResourceGroup
from resources.units import GIB, MIB
from sessions.lifecycle import Status
from sessions.models import Conversion, Endpoint, GpuShare, IdleRule, Lease, Session, SessionEvent
from tests.factories import (
    PASSWORD,
    make_endpoint,
    make_folder,
    make_group,
    make_host,
    make_image,
    make_policy,
    make_preset,
    make_project,
    make_root,
    make_session,
    make_user,
    run_session,
    session_in,
)

OURS = ("accounts", "folders", "resources", "compute")
MODELS = sorted((model for model in admin.site._registry if model._meta.app_label in OURS), key=lambda m: m.__name__)
ADDABLE = {
    *(AccountInvitation, IdleRule, User, Project, ResourcePolicy, ResourceGroup, Preset, Image, Registry),
    StorageRoot,
}
WRITTEN_BY_SERVICES = (Conversion, Endpoint, Folder, Session, SessionEvent, Lease, GpuShare)
pytestmark = pytest.mark.django_db


@pytest.fixture
def superadmin(client: Client) -> Client:
    client.force_login(make_user(is_superuser=True), backend="django.contrib.auth.backends.ModelBackend")
    return client


def url(model: type[Model], page: str, *args: object) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


def populate() -> None:
    """Make at least one row of every model."""
    session = run_session(fgpu=2500)
    session.events.create(new_status="RUNNING", reason="STARTED", actor=session.owner)
    make_endpoint(session).events.create(what="Opened.", actor=session.owner)
    make_preset(group=session.resource_group)
    Conversion.objects.create(session=session, reference="gpuplatform/private/ada/tool:1")
    session.resource_group.users.add(session.owner)
    make_project(session.owner)
    ApiToken.objects.issue(session.owner)
    SshKey.objects.create(owner=session.owner, title="laptop", text="ssh-ed25519 AAAA", fingerprint="SHA256:AAAA")
    Registry.objects.create(name="Lab", address="registry.example.com")
    FolderShare.objects.create(folder=make_folder(root=make_root(session.lease.host)), user=session.owner)
    Installation.current_key()
    audit.record(session.owner, "changed", session, {})
    IdleRule.objects.create(name="Nights", idle_timeout=timedelta(hours=8))
    invitations.invite("new@example.org", policy=make_policy(), project=None, by=session.owner)


def text_of(page: HttpResponseBase) -> str:
    assert isinstance(page, HttpResponse)
    return page.content.decode()


def test_every_model_of_ours_is_administered() -> None:
    assert len(MODELS) == 23


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_admin_page_opens_for_a_superadmin(superadmin: Client, model: type[Model]) -> None:
    populate()
    row = model._default_manager.first()
    assert row is not None
    assert superadmin.get(url(model, "changelist")).status_code == 200
    assert superadmin.get(url(model, "changelist"), {"q": "a"}).status_code == 200
    assert superadmin.get(url(model, "change", row.pk)).status_code == 200
    assert superadmin.get(url(model, "add")).status_code == (200 if model in ADDABLE else 403)


@pytest.mark.parametrize("query", ["?q=a%00b", "?e=%00", "?pk__exact=%00", "a%00b/change/"])
def test_a_nul_in_the_address_is_400(superadmin: Client, query: str) -> None:
    assert superadmin.get(url(Session, "changelist") + query).status_code == 400


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_nothing_opens_for_others(client: Client, model: type[Model]) -> None:
    for user in (None, make_user(), make_user(is_staff=True)):
        if user is not None:
            client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        for page in ("changelist", "add"):
            assert client.get(url(model, page)).status_code in {302, 403}


@pytest.mark.parametrize("model", WRITTEN_BY_SERVICES, ids=lambda model: model.__name__)
def test_rows_of_services_are_read_only(superadmin: Client, model: type[Model]) -> None:
    populate()
    row = model._default_manager.first()
    assert row is not None
    assert superadmin.post(url(model, "change", row.pk), {"status": "TERMINATED"}).status_code == 403
    assert superadmin.post(url(model, "delete", row.pk), {"post": "yes"}).status_code == 403
    assert Session.objects.get().status == Status.RUNNING
    assert "<select" not in text_of(superadmin.get(url(model, "change", row.pk)))


def test_variables_are_shown_by_name_only(superadmin: Client) -> None:
    session = make_session(environment={"MY_TOKEN": "hunter2"})
    page = text_of(superadmin.get(url(Session, "change", session.pk)))
    assert "MY_TOKEN" in page
    assert "hunter2" not in page


@pytest.mark.parametrize(("action", "status"), [("end", Status.TERMINATING), ("force_end", Status.TERMINATED)])
def test_sessions_are_ended_by_the_services(superadmin: Client, action: str, status: Status) -> None:
    running, waiting = run_session(), make_session()
    rows = [running.pk, waiting.pk]
    answer = superadmin.post(url(Session, "changelist"), {"action": action, "_selected_action": rows}, follow=True)
    assert "2 of 2 were live and are ended" in text_of(answer)
    assert [Session.objects.get(pk=pk).status for pk in rows] == [status, Status.CANCELLED]


def test_an_apps_token_is_never_shown(superadmin: Client) -> None:
    endpoint = make_endpoint(token="hunter2")
    assert "hunter2" not in text_of(superadmin.get(url(Endpoint, "change", endpoint.pk)))


def test_admin_actions_unpublish_and_close_apps(superadmin: Client) -> None:
    endpoint = make_endpoint(is_public=True)
    link, _ = share(endpoint, expires=timezone.now() + timedelta(hours=1), actor=endpoint.session.owner)
    told = {
        "unpublish": "1 of 1 were public and are so no longer",
        "revoke_links": "1 link is void",
        "close": "1 app closed",
    }
    for action, words in told.items():
        body = {"action": action, "_selected_action": [endpoint.pk]}
        assert words in text_of(superadmin.post(url(Endpoint, "changelist"), body, follow=True))
    endpoint.refresh_from_db()
    link.refresh_from_db()
    assert (endpoint.is_public, endpoint.state, bool(link.revoked_at)) == (False, "CLOSED", True)
    whats = [event.what for event in endpoint.events.filter(actor__is_superuser=True)]
    assert whats == ["No longer public", f"Share link revoked: {link}", "Closed"]


def test_hosts_are_cordoned_and_uncordoned(superadmin: Client) -> None:
    host = make_host()
    for action, cordoned in (("cordon", True), ("uncordon", False)):
        superadmin.post(url(Host, "changelist"), {"action": action, "_selected_action": [host.pk]})
        assert Host.objects.get().is_cordoned is cordoned


def test_messages_and_errors_are_in_the_readers_language(superadmin: Client) -> None:
    korean = {"accept-language": "ko"}
    body = {"action": "cordon", "_selected_action": [make_host().pk]}
    page = superadmin.post(url(Host, "changelist"), body, follow=True, headers=korean)
    assert "호스트 1개를 차단했습니다." in text_of(page)
    form = {"name": "p", "cpu": "1", "memory": "8", "shared_memory": "64m", "fgpu": "0.5"}
    refused = superadmin.post(url(Preset, "add"), form, headers=korean)
    assert refused.context["adminform"].form.errors["memory"] == ["'8'에 단위가 없습니다. 예: 4g 또는 512m."]


NO_APPS = {"apps-TOTAL_FORMS": "0", "apps-INITIAL_FORMS": "0"}


def test_amounts_are_typed_as_people_write_them(superadmin: Client) -> None:
    form = {"environment": "Any", "version": "1", "reference": "any/image:1", "is_enabled": "on", "min_cpu": "1"}
    form |= NO_APPS
    superadmin.post(url(Image, "add"), form | {"min_memory": "1.5g", "min_fgpu": "0.35"})
    image = Image.objects.get()
    assert (image.min_memory, image.min_fgpu) == (1536 * MIB, 350)
    page = text_of(superadmin.get(url(Image, "change", image.pk)))
    assert 'value="1536m"' in page
    assert 'value="0.35"' in page


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory", "lots"),
        ("memory", "8"),
        ("shared_memory", "64"),
        ("memory", "-1"),
        ("memory", "9999999999t"),
        ("fgpu", "0.355"),
        ("fgpu", "9999999"),
        ("cpu", "9" * 20),
    ],
)
def test_a_wrong_amount_is_told_at_its_field(superadmin: Client, field: str, value: str) -> None:
    form = {"name": "p", "cpu": "1", "memory": "1g", "shared_memory": "64m", "fgpu": "0.5"} | {field: value}
    answer = superadmin.post(url(Preset, "add"), form)
    assert answer.status_code == 200
    assert list(answer.context["adminform"].form.errors) == [field]
    assert not Preset.objects.exists()


def test_an_empty_limit_is_unlimited(superadmin: Client) -> None:
    policy = make_policy(memory=5 * GIB + 1, fgpu=None)
    form = {
        "name": policy.name,
        "memory": f"{5 * GIB + 1}b",
        "fgpu": "",
        "cpu": "",
        "max_sessions": "3",
        "max_extension": "0",
        "share_weight": "100",
    }
    superadmin.post(url(ResourcePolicy, "change", policy.pk), form)
    policy.refresh_from_db()
    assert (policy.memory, policy.fgpu, policy.max_sessions) == (5 * GIB + 1, None, 3)


def group_form(group: ResourceGroup, **changes: object) -> dict[str, object]:
    rules = {"placement": "pack", "queue_order": "fifo", "ageing": "06:00:00", "reservation_delay": "01:00:00"}
    rules |= {
        "start_allowance": "00:05:00",
        "preemption_grace": "00:02:00",
        "preemptible_charge_percent": "50",
        "half_life": "1 00:00:00",
        "starvation_limit": "1 00:00:00",
        "sharing": "cap",
        "allow_interactive": "on",
        "allow_batch": "on",
    }
    return {"name": group.name, "fgpu_per_gpu": 2, "host_loss_grace": "00:10:00", "is_active": "on"} | rules | changes


def test_saving_a_group_says_what_changes_for_the_queue(superadmin: Client) -> None:
    group = make_group()
    make_session(resource_group=group)
    make_session(resource_group=group, kind="batch", command="true")
    form = group_form(group, queue_order="fair", pending_timeout="01:00:00")
    for name in ("allow_batch", "is_active"):
        del form[name]
    answer = superadmin.post(url(ResourceGroup, "change", group.pk), form, follow=True)
    assert [str(message) for message in answer.context["messages"]][:5] == [
        "2 sessions wait here, and start once the group is active again.",
        "1 waiting session is of a kind that the group takes no longer; it keeps its place.",
        "2 sessions wait here whose owners may not use the group any more; they keep their places.",
        "2 sessions wait here; the queue is ordered anew.",
        "2 sessions wait here; those that have waited for that long are cancelled.",
    ]
    del form["allow_interactive"]
    answer = superadmin.post(url(ResourceGroup, "change", group.pk), form)
    assert list(answer.context["adminform"].form.errors) == ["allow_batch"]


def test_fgpu_per_gpu_is_fixed_while_leases_exist(superadmin: Client) -> None:
    session = run_session(fgpu=500)
    group = session.resource_group
    answer = superadmin.post(url(ResourceGroup, "change", group.pk), group_form(group, fgpu_per_gpu=4))
    assert "cannot change while sessions hold resources" in str(answer.context["adminform"].form.errors["fgpu_per_gpu"])
    assert superadmin.post(url(ResourceGroup, "change", group.pk), group_form(group, name="new")).status_code == 302
    idle = make_group()
    assert superadmin.post(url(ResourceGroup, "change", idle.pk), group_form(idle, fgpu_per_gpu=4)).status_code == 302


@pytest.mark.django_db(transaction=True)
def test_a_lease_between_validation_and_save_is_reported(superadmin: Client) -> None:
    group = make_group(fgpu_per_gpu=2)
    host = make_host(group=group, gpus=1)
    held: list[Session] = []

    def lease_elsewhere() -> None:
        held.append(run_session(host=host, fgpu=500))
        connection.close()

    def meddle(**kwargs: object) -> None:
        if not held:
            with ThreadPoolExecutor(1) as elsewhere:
                elsewhere.submit(lease_elsewhere).result()

    pre_save.connect(meddle, sender=ResourceGroup)
    try:
        answer = superadmin.post(url(ResourceGroup, "change", group.pk), group_form(group, fgpu_per_gpu=4))
    finally:
        pre_save.disconnect(meddle, sender=ResourceGroup)
    assert list(answer.context["adminform"].form.errors) == ["fgpu_per_gpu"]
    assert ResourceGroup.objects.get(pk=group.pk).fgpu_per_gpu == 2


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"shared_memory": "4g"}, "shared_memory", "cannot be above 2 GiB"),
        ({"shared_memory": "0m"}, "shared_memory", "at least 1 MiB"),
    ],
)
def test_an_impossible_preset_is_refused(superadmin: Client, changes: dict[str, str], field: str, words: str) -> None:
    form = {"name": "half", "cpu": "1", "memory": "2g", "shared_memory": "64m", "fgpu": "0.5"}
    answer = superadmin.post(url(Preset, "add"), form | changes)
    errors = answer.context["adminform"].form.errors
    assert list(errors) == [field]
    assert words in str(errors[field])
    assert superadmin.post(url(Preset, "add"), form).status_code == 302


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"reference": "UPPER CASE!!"}, "reference", "is not an image reference"),
        ({"is_default": "on"}, "is_default", "Python 3.11 is already the default"),
    ],
)
def test_an_invalid_image_is_refused(superadmin: Client, changes: dict[str, str], field: str, words: str) -> None:
    make_image(environment="Python", version="3.11", is_default=True)
    form = {"environment": "Python", "version": "3.14", "reference": "python:3.14", "min_cpu": "1"}
    form |= {"min_memory": "64m", "min_fgpu": "0"} | NO_APPS
    answer = superadmin.post(url(Image, "add"), form | changes)
    errors = answer.context["adminform"].form.errors
    assert list(errors) == [field]
    assert words in str(errors[field])
    assert superadmin.post(url(Image, "add"), form).status_code == 302


def test_apps_are_edited_with_their_image(superadmin: Client) -> None:
    image = make_image()
    form = {name: str(getattr(image, name)) for name in ("environment", "version", "reference", "min_cpu")}
    form |= {"min_memory": "64m", "min_fgpu": "0", "apps-TOTAL_FORMS": "1", "apps-INITIAL_FORMS": "0"}
    app = {"name": "code", "title": "Code", "port": "8080", "command": "cd data\r\nexec code \\\r\n --all"}
    app |= {"readiness_path": "/", "start_path": "/", "position": "0"}
    form |= {f"apps-0-{name}": value for name, value in app.items()}
    answer = superadmin.post(url(Image, "change", image.pk), form | {"apps-0-start_path": "https://evil.example"})
    assert answer.status_code == 200
    assert superadmin.post(url(Image, "change", image.pk), form).status_code == 302
    assert image.apps.get().command == "cd data\nexec code \\\n --all"


def test_a_hosts_group_is_fixed_while_leases_exist(superadmin: Client) -> None:
    host, elsewhere = run_session().host, make_group()
    assert host is not None
    inline = {"gpus-TOTAL_FORMS": "0", "gpus-INITIAL_FORMS": "0"}
    answer = superadmin.post(url(Host, "change", host.pk), {"group": elsewhere.pk} | inline)
    assert list(answer.context["adminform"].form.errors) == ["group"]
    idle = make_host()
    assert superadmin.post(url(Host, "change", idle.pk), {"group": elsewhere.pk} | inline).status_code == 302


def test_users_are_created_and_found_by_email(superadmin: Client) -> None:
    policy = make_policy()
    inline = {"ResourceGroup_users-TOTAL_FORMS": "0", "ResourceGroup_users-INITIAL_FORMS": "0"}
    inline |= {"memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0"}
    form = {"email": "New@example.org", "policy": policy.pk, "usable_password": "true"} | inline
    form |= {"password1": PASSWORD, "password2": PASSWORD}
    assert superadmin.post(url(User, "add"), form).status_code == 302
    assert User.objects.get(email="new@example.org").check_password(PASSWORD)
    again = superadmin.post(url(User, "add"), form | {"email": "new@EXAMPLE.org"})
    assert list(again.context["adminform"].form.errors) == ["email"]


def test_admins_change_passwords_and_revoke_tokens(superadmin: Client) -> None:
    user = make_user()
    row, _ = ApiToken.objects.issue(user)
    form = {"password1": "another long one", "password2": "another long one", "usable_password": "true"}
    assert superadmin.post(reverse("admin:auth_user_password_change", args=[user.pk]), form).status_code == 302
    user.refresh_from_db()
    assert user.check_password("another long one")
    assert superadmin.post(url(ApiToken, "delete", row.pk), {"post": "yes"}).status_code == 302
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize("model", [Preset, ResourceGroup, ResourcePolicy, Image])
def test_the_unit_is_written_as_everywhere(superadmin: Client, model: type[Model]) -> None:
    page = text_of(superadmin.get(url(model, "add")))
    assert "fGPU" in page
    assert "FGPU" not in page


def test_the_site_has_our_name(superadmin: Client) -> None:
    assert "GPU Platform" in text_of(superadmin.get("/admin/"))


def test_the_app_list_shows_the_sessions_status(superadmin: Client) -> None:
    make_endpoint(session_in(Status.TERMINATED), is_public=True)
    page = text_of(superadmin.get(url(Endpoint, "changelist")))
    assert '<td class="field-session_status">TERMINATED</td>' in page
    running = superadmin.get(url(Endpoint, "changelist"), {"session__status__exact": Status.RUNNING})
    assert "0 endpoints" in text_of(running)


def test_the_icons_offered_for_an_app_are_there(superadmin: Client) -> None:
    page = text_of(superadmin.get(url(Image, "change", make_image().pk)))
    drawn = (settings.BASE_DIR / "static/img/icons.svg").read_text()
    for name in APP_ICONS:
        assert f'<option value="{name}">' in page
        assert f'id="{name}"' in drawn


def test_images_are_pulled_to_ready_hosts_on_request(superadmin: Client) -> None:
    pulled, built, host = make_image(), make_image(source="catalog"), make_host()
    chosen = {"action": "pull", "_selected_action": [pulled.pk, built.pk]}
    page = superadmin.post(url(Image, "changelist"), chosen, follow=True)
    assert "1 image will be pulled; ready hosts: 1." in text_of(page)
    assert "1 image left out" in text_of(page)
    assert [(pull.host, pull.image) for pull in ImagePull.objects.all()] == [(host, pulled)]


def test_front_page_shows_the_state_and_only_our_tables(superadmin: Client) -> None:
    host = make_host(gpus=1)
    run_session(host=host, name="runs")
    make_host(name="silent", status=HostStatus.LOST.value)
    make_session(name="waits")
    page = text_of(superadmin.get("/admin/"))
    assert page.index("silent") < page.index(host.name)  # trouble first
    assert "Not reachable" in page
    assert ">waits</a>" in page
    assert "axes" not in page
    assert reverse("admin:accounts_user_add") in page
    assert text_of(superadmin.get("/admin/axes/accessattempt/"))


def test_front_page_takes_as_many_queries_for_many_rows(superadmin: Client) -> None:
    counts = []
    for _ in range(2):
        for _ in range(3):
            make_session(resource_group=run_session().resource_group)
        with CaptureQueriesContext(connection) as queries:
            superadmin.get("/admin/")
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_staff_without_rights_see_no_dashboard(client: Client) -> None:
    client.force_login(make_user(is_staff=True), backend="django.contrib.auth.backends.ModelBackend")
    make_session(name="secret-name")
    page = text_of(client.get("/admin/"))
    assert "secret-name" not in page
    assert "You have no rights here." in page
