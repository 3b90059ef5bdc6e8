"""The audit log has who did what to which object, by which interface, with the values before and after."""

import getpass
import socket

import pytest
from django.core.management import call_command
from django.db.models import ProtectedError
from django.test import Client
from django.urls import reverse

from accounts import audit
from accounts.models import AuditEntry, ResourcePolicy, User
from resources.models import Host, ResourceGroup
from sessions.lifecycle import Status
from tests.factories import make_group, make_host, make_policy, make_user, session_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def root() -> User:
    return make_user(email="root@example.org", is_superuser=True)


def entries() -> list[tuple[str, str, dict[str, list[str | None]]]]:
    return [(each.action, each.object_text, each.changes) for each in AuditEntry.objects.order_by("id")]


def test_acts_have_values_before_and_after_by_name(root: User) -> None:
    small, large = make_policy(name="small"), make_policy(name="large", cpu=64)
    user, group = make_user(policy=small), make_group(name="lab")
    with audit.act(root, "changed", user, group, small):
        User.objects.filter(pk=user.pk).update(policy=large)
        group.users.set([user, root])
    by_name = {text: (action, changes) for action, text, changes in entries()}
    assert by_name.pop(str(user)) == ("changed", {"policy": ["small", "large"]})
    assert by_name == {"lab": ("changed", {"users": [None, f"root@example.org, {user}"]})}
    with audit.act(root, "changed", group):
        group.users.remove(user)
    assert entries()[-1] == ("changed", "lab", {"users": [str(user), None]})


def test_added_and_deleted_objects_have_all_values(root: User) -> None:
    with audit.act(root, "added") as made:
        made.append(ResourcePolicy.objects.create(name="tiny", cpu=1))
    with audit.act(root, "deleted", ResourcePolicy.objects.get(name="tiny")):
        ResourcePolicy.objects.get(name="tiny").delete()
    (_, _, added), (_, text, deleted) = entries()
    assert (added["cpu"], deleted["cpu"], text) == ([None, "1"], ["1", None], "tiny")


def test_refused_acts_leave_no_entry(root: User) -> None:
    policy = make_policy(name="used")
    make_user(policy=policy)
    with pytest.raises(ProtectedError), audit.act(root, "deleted", policy):
        policy.delete()
    with audit.act(root, "changed", policy):
        pass
    assert entries() == []


def test_inner_entries_replace_those_around_them(root: User) -> None:
    host = make_host(name="gpu1")
    with audit.act(root, "changed", host):
        with pytest.raises(ProtectedError), audit.act(root, "lost", host):
            host.group.delete()
        with audit.act(root, "drain", host):
            Host.objects.update(is_cordoned=True)
    assert entries() == [("drain", "gpu1", {"is_cordoned": ["False", "True"]})]


def test_what_owners_do_themselves_is_not_recorded(client: Client, root: User) -> None:
    session, other = session_in(Status.RUNNING), session_in(Status.RUNNING)
    for user, target, name in ((session.owner, session, "mine"), (root, other, "theirs")):
        client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        path = f"/api/v1/sessions/{target.pk}/"
        client.patch(path, {"name": name}, content_type="application/json", REMOTE_ADDR="192.0.2.9")
        client.post(f"{path}terminate/", REMOTE_ADDR="192.0.2.9")
    rename, end = AuditEntry.objects.order_by("id")
    assert (rename.action, rename.changes["name"], rename.source) == ("rename", [other.name, "theirs"], "api")
    assert (end.action, end.changes["status"]) == ("end", ["RUNNING", "TERMINATING"])
    assert (end.actor_name, end.address, end.source) == ("root@example.org", "192.0.2.9", "api")


def test_hosts_are_recorded_from_pages_and_the_api(client: Client, root: User) -> None:
    make_host(name="gpu1")
    client.force_login(root, backend="django.contrib.auth.backends.ModelBackend")
    client.post(reverse("overview:host-drain", args=["gpu1"]), {"minutes": "", "reason": "new disks"})
    client.delete("/api/v1/hosts/gpu1/drain/")
    drain, undrain = AuditEntry.objects.order_by("id")
    assert (drain.action, drain.source, drain.changes["cordon_reason"]) == ("drain", "page", [None, "new disks"])
    assert (undrain.action, undrain.source) == ("uncordon", "api")
    assert undrain.changes["is_cordoned"] == ["True", "False"]


def test_announcements_by_the_api_are_recorded(client: Client, root: User) -> None:
    client.force_login(root, backend="django.contrib.auth.backends.ModelBackend")
    path = "/api/v1/announcements/"
    made = client.post(path, {"text": "Maintenance"}, content_type="application/json").json()
    client.patch(f"{path}{made['id']}/", {"text": "Over"}, content_type="application/json")
    client.delete(f"{path}{made['id']}/")
    (_, _, added), (_, _, changed), (_, text, deleted) = entries()
    assert (added["text"], changed) == ([None, "Maintenance"], {"text": ["Maintenance", "Over"]})
    assert (text, deleted["text"]) == ("Over", ["Over", None])


def test_commands_are_recorded_with_the_systems_user() -> None:
    options = {"email": "first@example.org", "interactive": False, "verbosity": 0}
    call_command("createsuperuser", **options)
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.source, entry.address) == (None, "command", None)
    assert entry.actor_name == f"{getpass.getuser()}@{socket.gethostname()}"
    assert entry.changes["password"] == [None, "***"]
    assert (entry.action, entry.object_text) == ("create superadmin", "first@example.org")
    assert not ResourceGroup.objects.exists()
