"""What administrators do is recorded with the values before and after."""

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from accounts.models import AuditEntry, ResourcePolicy, User
from gpuplatform.administration.audited_admin import AuditedAdmin
from gpuplatform.tests.admin_pages import confirm
from resources.models import Host, Registry
from sessions.drains import services as drains
from sessions.lifecycle import Status
from sessions.models import Session
from tests.factories import PASSWORD, make_host, make_policy, make_user, session_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def actor() -> User:
    return make_user(email="root@example.org", is_superuser=True)


@pytest.fixture
def superadmin(client: Client, actor: User) -> Client:
    client.force_login(actor, backend="django.contrib.auth.backends.ModelBackend")
    return client


def entries() -> list[tuple[str, str, str, dict[str, list[str | None]]]]:
    return [
        (each.actor_name, each.action, each.object_text, each.changes) for each in AuditEntry.objects.order_by("id")
    ]


def test_every_table_of_the_site_is_audited() -> None:
    assert all(isinstance(each, AuditedAdmin) for each in admin.site._registry.values())


def test_changes_and_deletions_have_values_before_and_after(superadmin: Client) -> None:
    policy = make_policy(name="students", cpu=4, max_extension="0")
    page = superadmin.get(reverse("admin:accounts_resourcepolicy_change", args=[policy.pk]))
    form = page.context["adminform"].form
    body = {name: form[name].value() for name in form.fields if form[name].value() is not None}
    superadmin.post(reverse("admin:accounts_resourcepolicy_change", args=[policy.pk]), body | {"cpu": "8"})
    assert ResourcePolicy.objects.get(pk=policy.pk).cpu == 8
    assert entries() == [("root@example.org", "changed", "students", {"cpu": ["4", "8"]})]
    superadmin.post(reverse("admin:accounts_resourcepolicy_delete", args=[policy.pk]), {"post": "yes"})
    actor_name, action, text, changes = entries()[-1]
    assert (actor_name, action, text, changes["cpu"]) == ("root@example.org", "deleted", "students", ["8", None])


def test_actions_are_recorded_with_what_they_changed(superadmin: Client, actor: User) -> None:
    host = make_host(name="gpu1")
    body = {"action": "cordon", "_selected_action": [host.pk]}
    superadmin.post(reverse("admin:resources_host_changelist"), body, REMOTE_ADDR="192.0.2.7")
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.object_text, entry.address) == ("cordon", "gpu1", "192.0.2.7")
    assert entry.changes == {"is_cordoned": ["False", "True"]}
    session = session_in(Status.PENDING)
    for action, changed in (("end", "ends at"), ("force_end", "status")):
        confirm(superadmin, reverse("admin:compute_session_changelist"), action, [session.pk])
        assert changed in AuditEntry.objects.first().changes  # type: ignore[union-attr]
    drains.drain(Host.objects.get(), end_at=None, reason="new disks", actor=actor)
    assert AuditEntry.objects.first().changes == {"cordon_reason": [None, "new disks"]}  # type: ignore[union-attr]
    assert Session.objects.get().status == Status.CANCELLED


def test_actions_on_all_that_match_are_recorded_or_refused(superadmin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [make_host(name=name) for name in ("gpu1", "gpu2", "other")]
    body = {"action": "cordon", "_selected_action": [hosts[0].pk], "select_across": "1"}
    address = f"{reverse('admin:resources_host_changelist')}?q=gpu"
    monkeypatch.setattr("gpuplatform.administration.audited_admin.MAX_ACTION_ROWS", 1)
    assert "nothing was changed" in superadmin.post(address, body, follow=True).content.decode()
    assert not Host.objects.filter(is_cordoned=True).exists()
    monkeypatch.setattr("gpuplatform.administration.audited_admin.MAX_ACTION_ROWS", 2)
    superadmin.post(address, body)
    assert sorted(text for _, _, text, _ in entries()) == ["gpu1", "gpu2"]
    assert Host.objects.filter(is_cordoned=True).count() == 2


@pytest.mark.parametrize(("action", "status"), [("disable", Status.RUNNING), ("disable_and_end", Status.TERMINATING)])
def test_disabled_users_lose_what_the_action_says(superadmin: Client, actor: User, action: str, status: Status) -> None:
    running = session_in(Status.RUNNING)
    waiting = session_in(Status.PENDING, owner=running.owner)
    confirm(superadmin, reverse("admin:accounts_user_changelist"), action, [running.owner_id, actor.pk])
    assert list(User.objects.filter(is_active=True)) == [actor]
    for session in (running, waiting):
        session.refresh_from_db()
    assert (running.status, waiting.status) == (status, Status.CANCELLED)
    assert AuditEntry.objects.get(object_id=running.owner_id).changes == {"is_active": ["True", "False"]}


def test_secrets_are_never_recorded(superadmin: Client) -> None:
    inline = {"ResourceGroup_users-TOTAL_FORMS": "0", "ResourceGroup_users-INITIAL_FORMS": "0"}
    inline |= {"memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0"}
    body = {"email": "new@example.org", "policy": make_policy().pk, "usable_password": "true"} | inline
    superadmin.post(reverse("admin:accounts_user_add"), body | {"password1": PASSWORD, "password2": PASSWORD})
    superadmin.post(
        reverse("admin:resources_registry_add"),
        {"name": "Lab", "address": "registry.example.org", "username": "ci", "password": PASSWORD},
    )
    assert User.objects.filter(email="new@example.org").exists()
    assert Registry.objects.exists()
    assert PASSWORD not in str(entries())
    assert [changes.get("password1") or changes.get("password") for *_, changes in entries()] == [[None, "***"]] * 2


def test_history_of_an_object_is_its_part_of_the_log(superadmin: Client) -> None:
    hosts = [make_host(name=name) for name in ("gpu1", "gpu2")]
    body = {"action": "cordon", "_selected_action": [host.pk for host in hosts]}
    superadmin.post(reverse("admin:resources_host_changelist"), body)
    page = superadmin.get(reverse("admin:resources_host_history", args=[hosts[0].pk]), follow=True)
    assert [entry.object_text for entry in page.context["cl"].queryset] == ["gpu1"]


def test_an_action_that_leads_to_a_form_is_no_act(superadmin: Client) -> None:
    session = session_in(Status.RUNNING)
    body = {"action": "convert", "_selected_action": [session.pk]}
    assert superadmin.post(reverse("admin:compute_session_changelist"), body).status_code == 302
    assert not AuditEntry.objects.exists()


def test_chosen_hosts_are_drained_after_a_form(superadmin: Client) -> None:
    session = session_in(Status.RUNNING)
    hosts = [session.host, make_host(name="other")]
    body = {"action": "drain", "_selected_action": [host.pk for host in hosts if host]}
    address = reverse("admin:resources_host_changelist")
    page = superadmin.post(address, body).content.decode()
    assert "1 session is on it now." in page
    assert not Host.objects.filter(is_cordoned=True).exists()
    assert superadmin.post(address, body | {"minutes": "7", "reason": ""}).status_code == 422
    page = superadmin.post(address, body | {"minutes": "60", "reason": "new fans"}, follow=True).content.decode()
    assert "2 hosts are drained. Sessions left: 1." in page
    assert set(Host.objects.values_list("is_cordoned", "cordon_reason")) == {(True, "new fans")}
    assert session.events.filter(reason="HOST_DRAINED").exists()
    assert [action for _, action, _, _ in entries()] == ["drain", "drain"]


def test_the_log_is_read_only_and_outlives_its_actor(superadmin: Client, actor: User) -> None:
    host = make_host(name="gpu1")
    superadmin.post(reverse("admin:resources_host_changelist"), {"action": "cordon", "_selected_action": [host.pk]})
    page = superadmin.get(reverse("admin:accounts_auditentry_changelist")).content.decode()
    assert "is_cordoned: False → True" in page
    entry = AuditEntry.objects.get()
    for name in ("delete", "change"):
        address = reverse(f"admin:accounts_auditentry_{name}", args=[entry.pk])
        assert superadmin.post(address, {"post": "yes"}).status_code == 403
    actor.delete()
    entry.refresh_from_db()
    assert (entry.actor, entry.actor_name) == (None, "root@example.org")
