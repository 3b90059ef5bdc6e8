"""Forms of the administration: amounts as people write them, and what a form refuses at which field."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import Model
from django.db.models.signals import pre_save
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import ApiToken, ResourcePolicy, User
from gpuplatform.tests.admin_pages import text_of, url
from notifications.models import Announcement
from resources.amounts.units import GIB, MIB
from resources.models import GpuWeight, Host, Image, Preset, ResourceGroup
from sessions.models import Session
from tests.factories import (
    PASSWORD,
    make_gpu,
    make_group,
    make_host,
    make_image,
    make_policy,
    make_project,
    make_session,
    make_user,
    run_session,
)

pytestmark = pytest.mark.django_db

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
    assert "Least GPU memory" in page
    assert 'value="0b"' not in page
    least = {"min_memory": "1.5g", "min_fgpu": "0.35", "min_gpu_memory": "20g"}
    superadmin.post(url(Image, "change", image.pk), form | least)
    assert Image.objects.get().min_gpu_memory == 20 * GIB
    assert superadmin.post(url(Image, "change", image.pk), form | least | {"min_gpu_memory": ""}).status_code == 302
    assert Image.objects.get().min_gpu_memory == 0


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
def test_a_wrong_amount_is_reported_at_its_field(superadmin: Client, field: str, value: str) -> None:
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
        "max_cluster_size": "64",
        "share_weight": "100",
    }
    superadmin.post(url(ResourcePolicy, "change", policy.pk), form)
    policy.refresh_from_db()
    assert (policy.memory, policy.fgpu, policy.max_sessions) == (5 * GIB + 1, None, 3)


def test_the_form_of_a_policy_says_what_limits_mean_today(superadmin: Client) -> None:
    policy = make_policy(cpu=2, memory=8 * GIB, max_pending=None)
    run_session(owner=make_user(policy=policy), cpu=2, memory=2 * GIB)
    greedy = make_user(policy=policy)
    run_session(owner=greedy, cpu=3, memory=GIB)
    make_session(owner=greedy)
    make_project(policy=policy)
    run_session(cpu=9)  # under another policy
    answer = superadmin.get(url(ResourcePolicy, "change", policy.pk))
    fields = answer.context["adminform"].form.fields
    assert fields["cpu"].help_text.endswith("Today the most that anyone has is 3; at the limit: 1; above it: 1.")
    assert "With its unit, such as 512m or 8g. Today the most that anyone has is 2 GiB;" in fields["memory"].help_text
    assert fields["max_pending"].help_text.endswith("Today the most that anyone has is 1.")
    assert "such as 7 00:00:00" in fields["max_lifetime"].help_text
    assert "Users bound by it: 2. Projects: 1." in text_of(answer)
    assert "Today" not in text_of(superadmin.get(url(ResourcePolicy, "add")))


def test_every_limit_has_a_place_in_the_form(superadmin: Client) -> None:
    shown = superadmin.get(url(ResourcePolicy, "add")).context["adminform"].form.fields
    assert set(shown) == {each.name for each in ResourcePolicy._meta.fields} - {"id"}


def test_dates_and_times_are_labelled(superadmin: Client) -> None:
    page = text_of(superadmin.get(url(Announcement, "add")))
    for name, label in (("starts_at", "Shown from"), ("ends_at", "Shown until")):
        for number, part in enumerate(("Date", "Time (UTC)")):
            words = f'<span class="visually-hidden">{label}</span> {part}</label>'
            assert f'<label for="id_{name}_{number}">{words}' in page


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
        **{"cpu_overcommit": "1", "accelerator": group.accelerator},
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


def test_saving_a_group_says_what_becomes_of_amounts_and_spans(superadmin: Client) -> None:
    group = make_group()
    make_session(resource_group=group, fgpu=500)
    make_session(resource_group=group, time_limit=timedelta(minutes=30))
    Preset.objects.create(group=group, name="half", cpu=1, memory=GIB, fgpu=500)
    form = group_form(group, fgpu_per_gpu=4, max_lifetime="01:00:00", open_to_all="on")
    answer = superadmin.post(url(ResourceGroup, "change", group.pk), form, follow=True)
    assert [str(message) for message in answer.context["messages"]][:3] == [
        "1 session waits here for a number of fGPU, each of which is another part of a GPU now.",
        "1 preset of the group asks for a number of fGPU, each of which is another part of a GPU now.",
        "1 waiting session may run for less time than it was to.",
    ]


def test_a_lifetime_that_would_end_running_sessions_is_refused(superadmin: Client) -> None:
    session = run_session()
    Session.objects.filter(pk=session.pk).update(started_at=timezone.now() - timedelta(hours=2))
    address = url(ResourceGroup, "change", session.resource_group_id)
    answer = superadmin.post(address, group_form(session.resource_group, max_lifetime="01:00:00"))
    assert "1 session has run here for longer" in str(answer.context["adminform"].form.errors["max_lifetime"])
    assert superadmin.post(address, group_form(session.resource_group, max_lifetime="03:00:00")).status_code == 302


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


def test_a_weight_of_an_unknown_model_warns(superadmin: Client) -> None:
    make_gpu(name="NVIDIA A100")
    assert "Hosts report: NVIDIA A100." in superadmin.get(url(GpuWeight, "add")).content.decode()
    form = {"model": "NVIDIA H100", "weight": "2"}
    saved = superadmin.post(url(GpuWeight, "add"), form, follow=True)
    assert "No host reports this model." in text_of(saved)
    assert "No host reports" not in text_of(
        superadmin.post(url(GpuWeight, "add"), form | {"model": "NVIDIA A100"}, follow=True)
    )
    refused = superadmin.post(url(GpuWeight, "add"), form | {"model": "Other", "weight": "101"})
    assert list(refused.context["adminform"].form.errors) == ["weight"]


@pytest.mark.parametrize("model", [Preset, ResourceGroup, ResourcePolicy, Image])
def test_the_unit_is_written_as_everywhere(superadmin: Client, model: type[Model]) -> None:
    page = text_of(superadmin.get(url(model, "add")))
    assert "fGPU" in page
    assert "FGPU" not in page
