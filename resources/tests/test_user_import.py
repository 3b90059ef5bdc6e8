"""Users are imported from CSV: previewed, refused row by row, and never in part."""

import re

import pytest
from django.core import mail
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings

import accounts.signing_in.mail
from accounts.models import ApiToken, AuditEntry, Membership, ResourcePolicy, User
from resources.user_import import services as user_import
from resources.user_import.services import UserImportError
from tests.factories import PASSWORD, make_group, make_policy, make_project, make_user
from tests.web import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def root() -> User:
    return make_user(email="root@example.org", is_superuser=True, first_name="Root")


@pytest.fixture
def known() -> User:
    make_policy(name="Students")
    make_project(name="vision")
    make_group(name="lab")
    return make_user(email="ada@example.org", first_name="Ada", policy=make_policy(name="staff"))


def changes_of(text: str) -> dict[str, dict[str, tuple[str | None, str | None]]]:
    return {row.email: row.changes for row in user_import.plan(text).rows}


def test_rows_say_what_they_would_change(known: User) -> None:
    text = (
        "\ufeffEmail;First name;policy;projects;resource_groups\r\nADA@example.org; ;students;;\r\n"
        "\r\nbo@example.org;Bo;;vision;lab\r\nada2@example.org;;;;\r\n"
    )
    plan = user_import.plan(text)
    assert [(row.line, row.is_new, row.errors) for row in plan.rows] == [(2, False, {}), (4, True, {}), (5, True, {})]
    assert (plan.new_count, plan.changed_count, plan.error_count) == (2, 1, 0)
    assert changes_of(text) == {
        "ada@example.org": {"policy": ("staff", "Students")},
        "bo@example.org": {
            **{"policy": (None, "default"), "first_name": (None, "Bo")},
            **{"projects": (None, "vision"), "resource_groups": (None, "lab")},
        },
        "ada2@example.org": {"policy": (None, "default")},
    }
    assert User.objects.count() == 1


def test_import_is_what_was_previewed_and_recorded(known: User, root: User) -> None:
    text = "email,first_name,policy,share_weight,projects,resource_groups\nbo@example.org,Bo,Students,200,vision,lab\n"
    text += "ada@example.org,,,,vision,\n"
    user_import.carry_out(text, actor=root, digest=user_import.plan(text).digest)
    bo = User.objects.get(email="bo@example.org")
    assert (bo.first_name, bo.policy.name, bo.share_weight, bo.has_usable_password()) == ("Bo", "Students", 200, False)
    assert [group.name for group in bo.resource_groups.all()] == ["lab"]
    assert set(Membership.objects.values_list("user__email", "project__name")) == {
        ("bo@example.org", "vision"),
        ("ada@example.org", "vision"),
    }
    assert {(each.action, each.object_text) for each in AuditEntry.objects.all()} == {
        ("import", "bo@example.org"),
        ("import", "ada@example.org"),
    }
    assert user_import.plan(text).changed_count == user_import.plan(text).new_count == 0


def test_imported_members_need_a_demanded_second_factor(known: User, root: User) -> None:
    make_project(name="secret", policy=make_policy(name="strict", require_second_factor=True))
    ApiToken.objects.issue(known)
    user_import.carry_out("email,projects\nada@example.org,secret\n", actor=root)
    assert not ApiToken.objects.exists(), "got by password alone"


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ("no-address,,,,,", "email"),
        (",Bo,,,,", "email"),
        ("ok@example.org,,,,,", "email"),
        ("bo@example.org,,nobody,,,", "policy"),
        ("bo@example.org,,,0,,", "share_weight"),
        ("bo@example.org,,,heavy,,", "share_weight"),
        (f"bo@example.org,,,{'9' * 5000},,", "share_weight"),
        ("bo@example.org,,,,vision|none,", "projects"),
        ("bo@example.org,,,,,none", "resource_groups"),
        (f"bo@example.org,{'x' * 151},,,,", "first_name"),
    ],
)
def test_one_bad_row_imports_nothing(known: User, root: User, row: str, column: str) -> None:
    text = f"email,first_name,policy,share_weight,projects,resource_groups\nok@example.org,,,,,\n{row}\n"
    bad = user_import.plan(text).rows[1]
    assert (bad.line, list(bad.errors)) == (3, [column])
    with pytest.raises(UserImportError, match="Nothing was imported"):
        user_import.carry_out(text, actor=root)
    assert not User.objects.filter(email="ok@example.org").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must name the column “email”"),
        ("name\nbo\n", "no column “name”"),
        ("email,email\n", "a column twice"),
        ("email\na@b.org,more\n", "Line 2 has more than 1"),
        ('email\n"a@b.org\n', "cannot be read"),
        ("email\n\0\n", "no text file"),
        ("email\n" + "a@b.org\n" * 2001, "at most 2000 rows"),
    ],
)
def test_files_that_are_no_table_are_refused(text: str, problem: str) -> None:
    with pytest.raises(UserImportError, match=problem):
        user_import.plan(text)


def test_a_name_twice_in_a_cell_counts_once(known: User, root: User) -> None:
    user_import.carry_out("email,projects,resource_groups\nbo@example.org,vision|Vision,lab|LAB\n", actor=root)
    assert [each.project.name for each in Membership.objects.filter(user__email="bo@example.org")] == ["vision"]


def test_an_outdated_plan_is_not_carried_out(known: User, root: User) -> None:
    text = "email,policy\nada@example.org,Students\nbo@example.org,\n"
    digest = user_import.plan(text).digest
    make_user(email="bo@example.org")
    with pytest.raises(UserImportError, match="different by now"):
        user_import.carry_out(text, actor=root, digest=digest)
    known.refresh_from_db()
    assert known.policy.name == "staff"


def test_queries_of_a_plan_do_not_grow_with_its_rows(known: User) -> None:
    make_user(email="user0@example.org")
    ResourcePolicy.default()

    def queries(count: int) -> int:
        text = "email,projects\n" + "".join(f"user{number}@example.org,vision\n" for number in range(count))
        with CaptureQueriesContext(
            connection,
        ) as captured:
            user_import.plan(text)
        return len(captured)

    assert queries(1) == queries(50)


def test_page_previews_imports_and_mails(
    client: Client, root: User, known: User, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(accounts.signing_in.mail, "send_soon", accounts.signing_in.mail.send_now)
    settings.COMPUTE_PUBLIC_URL = "https://gpu.example.org"
    client.force_login(root, backend="django.contrib.auth.backends.ModelBackend")
    address = reverse("admin:accounts_user_import")
    assert address in text_of(client, reverse("admin:accounts_user_changelist"))
    empty = client.get(address)
    assert (empty.status_code, 'id_sends_mail" checked' in empty.content.decode()) == (200, True)
    bad = client.post(address, {"text": "email,policy\nbo@example.org,none\n", "import": "1"})
    assert (bad.status_code, "There is no “none”" in bad.content.decode()) == (422, True)
    file = SimpleUploadedFile("users.csv", b"email,first_name\nbo@example.org,Bo\n")
    page = client.post(address, {"file": file, "preview": "1"})
    digest = re.search(r'name="digest" value="(\w+)"', page.content.decode())
    assert digest
    body = {"text": page.context["form"].cleaned_data["text"], "digest": digest[1], "sends_mail": "on", "import": "1"}
    assert client.post(address, body).status_code == 302
    assert mail.outbox[0].to == ["bo@example.org"]
    link = re.search(r"https://gpu\.example\.org(/\S+)", str(mail.outbox[0].body))
    assert link
    stranger = Client()
    form = stranger.get(link[1], follow=True)
    stranger.post(form.request["PATH_INFO"], {"password1": PASSWORD, "password2": PASSWORD})
    assert User.objects.get(email="bo@example.org").check_password(PASSWORD)
    client.force_login(known, backend="django.contrib.auth.backends.ModelBackend")
    assert client.get(address).status_code == 302
