"""The administration: open to superadmins for every model, shut to everybody else."""

import html
import re
from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib import admin
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accounts import audit
from accounts.invitations import services as invitations
from accounts.models import AccountInvitation, ApiToken, AuditEntry, Project, ResourcePolicy, SshKey, User
from endpoints.services import share
from folders.models import Folder, FolderShare, StorageRoot
from gpuplatform.administration.audited_admin import MAX_ACTION_ROWS
from gpuplatform.tests.admin_pages import confirm, text_of, url
from resources.image_admin import APP_ICONS
from resources.models import (
    ElasticHost,
    ElasticPool,
    GpuReading,
    GpuWeight,
    Host,
    HostStatus,
    Image,
    ImagePull,
    Installation,
    Preset,
    Registry,
    ResourceGroup,
)
from sessions.ending import services as ending
from sessions.lifecycle import Reason, Status
from sessions.models import (
    Conversion,
    Endpoint,
    GpuShare,
    IdleRule,
    Lease,
    RequestedEnd,
    Session,
    SessionEvent,
)
from sessions.words import REASON_WORDS
from tests.factories import (
    make_endpoint,
    make_folder,
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
    ElasticPool,
    GpuWeight,
}
WRITTEN_BY_SERVICES = (Conversion, Endpoint, Folder, Session, SessionEvent, Lease, GpuShare)
pytestmark = pytest.mark.django_db


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
    GpuWeight.objects.create(model="A100", weight=2)
    FolderShare.objects.create(folder=make_folder(root=make_root(session.lease.host)), user=session.owner)
    Installation.current_key()
    pool = ElasticPool.objects.create(group=session.resource_group)
    ElasticHost.objects.create(pool=pool, name="made-1", type_name="small", cost_per_hour=1)
    audit.record(session.owner, "changed", session, {})
    IdleRule.objects.create(name="Nights", idle_timeout=timedelta(hours=8))
    invitations.invite("new@example.org", policy=make_policy(), project=None, by=session.owner)


def test_every_model_of_ours_is_administered() -> None:
    assert len(MODELS) == 26


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


def test_sessions_are_ended_by_force_at_once(superadmin: Client) -> None:
    rows = [run_session().pk, make_session().pk]
    page = confirm(superadmin, url(Session, "changelist"), "force_end", rows)
    assert "2 of 2 were live and are ended" in page
    assert [Session.objects.get(pk=pk).status for pk in rows] == [Status.TERMINATED, Status.CANCELLED]


def test_ends_of_the_administration_can_be_undone(superadmin: Client) -> None:
    running, waiting, others = run_session(), make_session(), run_session()
    ending.request_end(others, actor=others.owner)
    rows = [running.pk, waiting.pk]
    page = confirm(superadmin, url(Session, "changelist"), "end", rows)
    assert "2 of 2 were live and end within 5 seconds" in page
    (address,) = re.findall(r'class="message-undo" method="post" action="([^"]+)"', page)
    assert [Session.objects.get(pk=pk).status for pk in rows] == [Status.RUNNING, Status.PENDING]
    assert superadmin.get(address).status_code == 405
    assert "2 sessions go on." in text_of(superadmin.post(address, follow=True))
    assert RequestedEnd.objects.get().session == others
    assert "Nothing to undo" in text_of(superadmin.post(address, follow=True))


def test_asked_again_by_the_administration_they_end(superadmin: Client) -> None:
    rows = [run_session().pk, make_session().pk]
    confirm(superadmin, url(Session, "changelist"), "end", rows)
    assert "message-undo" not in confirm(superadmin, url(Session, "changelist"), "end", rows)
    assert [Session.objects.get(pk=pk).status for pk in rows] == [Status.TERMINATING, Status.CANCELLED]


def test_nothing_is_ended_before_it_is_confirmed(superadmin: Client) -> None:
    running, endpoint = run_session(owner=make_user(email="mina@example.org")), make_endpoint(is_public=True)
    asked = [
        (Session, running, ("requeue", "end", "force_end"), ["mina@example.org", "Running"]),
        (User, running.owner, ("disable", "disable_and_end", "remove_second_factors"), []),
        (Endpoint, endpoint, ("unpublish", "revoke_links", "close"), [endpoint.session.owner.email]),
        (Folder, make_folder(running.owner), ("move_to_trash", "delete_forever"), ["mina@example.org"]),
    ]
    for model, row, actions, whose in asked:
        for action in actions:
            page = superadmin.post(url(model, "changelist"), {"action": action, "_selected_action": [row.pk]})
            assert page.status_code == 200
            assert page.context["rows"][0][0] == row
            for text in (*whose, str(row), page.context["consequence"], page.context["title"]):
                assert html.escape(str(text)) in text_of(page)
    body = {"action": "disable_and_end", "_selected_action": [running.owner.pk]}
    assert "1 live session" in text_of(superadmin.post(url(User, "changelist"), body))
    for row in (running, endpoint, running.owner):
        row.refresh_from_db()
    assert (running.status, endpoint.is_public, running.owner.is_active) == (Status.RUNNING, True, True)
    assert not AuditEntry.objects.exists()


def test_all_that_match_are_confirmed_in_one_form(superadmin: Client) -> None:
    sessions = sorted(make_session(name=name).pk for name in ("pick-one", "pick-two"))
    make_session(name="else")
    body = {"action": "end", "_selected_action": sessions[:1], "select_across": "1"}
    page = superadmin.post(f"{url(Session, 'changelist')}?q=pick", body)
    assert sorted(re.findall(r'name="_selected_action" value="([^"]+)"', text_of(page))) == sessions
    other_fields = 3
    assert MAX_ACTION_ROWS + other_fields <= settings.DATA_UPLOAD_MAX_NUMBER_FIELDS


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
        assert words in confirm(superadmin, url(Endpoint, "changelist"), action, [endpoint.pk])
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


def test_the_site_has_our_name(superadmin: Client) -> None:
    assert "GPU Platform" in text_of(superadmin.get("/admin/"))


def test_the_app_list_shows_the_sessions_status(superadmin: Client) -> None:
    make_endpoint(session_in(Status.TERMINATED), is_public=True)
    page = text_of(superadmin.get(url(Endpoint, "changelist")))
    assert '<td class="field-session_status">TERMINATED</td>' in page
    running = superadmin.get(url(Endpoint, "changelist"), {"session__status__exact": Status.RUNNING})
    assert "Nothing matches" in text_of(running)


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
    response = superadmin.get("/admin/")
    page = text_of(response)
    assert [each.name for each in response.context["dashboard"]["hosts"]] == ["silent", host.name]  # trouble first
    assert "Not reachable" in page
    assert ">waits</a>" in page
    assert "axes" not in page
    assert reverse("admin:accounts_user_add") in page
    assert text_of(superadmin.get("/admin/axes/accessattempt/"))


def test_front_page_shows_gpus_top_users_and_failures(superadmin: Client) -> None:
    host = make_host(name="gpu-a", gpus=2)
    session = run_session(host=host, fgpu=1000)
    GpuReading.objects.create(gpu=host.gpus.order_by("index")[0], utilisation=73)
    waiting = make_session(owner=session.owner, resource_group=session.resource_group)
    failed = session_in(Status.ERROR)
    page = superadmin.get("/admin/")
    board = page.context["dashboard"]
    capacity = host.group.fgpu_per_gpu
    assert [(cell.index, cell.held, cell.busy) for cell in board["gpus"]] == [(0, -(-10 // capacity), 8), (1, 0, None)]
    assert board["more_gpus"] == 0
    assert board["gpus"][0].label == f"gpu-a, GPU 0: 1 of {capacity} fGPU held, 73 % busy"
    (top,) = [each for each in board["top_users"] if each["owner_id"] == session.owner_id]
    assert (top["gpus"], top["cores"], top["holding"], top["waiting"]) == (1 / capacity, session.cpu, 1, 1)
    assert waiting.owner.email in text_of(page)
    assert board["error_reasons"] == [(failed.reason, REASON_WORDS[Reason(failed.reason)], 1)]


def test_the_queue_is_shown_with_owners_and_reasons(superadmin: Client) -> None:
    waiting = make_session(name="waits")
    Session.objects.filter(pk=waiting.pk).update(reason=Reason.USER_LIMIT)
    run_session(name="runs")
    words = "Waiting: your policy allows no more at once"
    board = text_of(superadmin.get("/admin/"))
    assert words in board
    assert f'href="/users/{waiting.owner_id}/"' in board
    (address,) = re.findall(r'href="(/sessions/\?[^"]+)">1 waiting', board)
    found = superadmin.get(html.unescape(address))
    listed = text_of(found)
    assert [row.count("data-session=") for row in found.context["rows"]] == [1]
    assert words in listed
    assert waiting.owner.email in listed
    table = text_of(superadmin.get(url(Session, "changelist")))
    assert words in table
    assert ">USER_LIMIT<" not in table


def test_rows_lead_to_pages_of_the_product_and_back(superadmin: Client) -> None:
    populate()
    session = Session.objects.get()
    pages = {Session: f"/sessions/{session.pk}/", Host: f"/hosts/{session.host}/", Lease: f"/sessions/{session.pk}/"}
    for model, page in pages.items():
        row = model._default_manager.get()
        assert f'href="{page}"' in text_of(superadmin.get(url(model, "changelist")))
        assert f'href="{page}"' in text_of(superadmin.get(url(model, "change", row.pk)))
        if model is not Lease:
            assert url(model, "change", row.pk) in text_of(superadmin.get(page))


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


def test_an_empty_list_says_whether_something_is_left_out(superadmin: Client) -> None:
    lists = url(Project, "changelist")
    assert "There is none yet" in text_of(superadmin.get(lists))
    make_project(name="vision")
    for narrowed in ("?q=else", "?name=else"):
        page = text_of(superadmin.get(lists + narrowed))
        assert "Nothing matches" in page
        assert "There is none yet" not in page
