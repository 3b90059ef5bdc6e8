"""The page of imports and what it leads to: the wizard, the launcher, credentials."""

from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import pytest

from accounts.models import User
from folders.models import Folder, StorageRoot
from imports.models import Import, ImportCredential, ImportState, ImportTarget
from pages.tests.import_rows import ADDRESS, make_import
from resources.models import Host, Image
from sessions.models import Endpoint, EndpointState, Session
from tests.factories import (
    make_app,
    make_folder,
    make_group,
    make_host,
    make_image,
    make_root,
    make_user,
    run_session,
)
from tests.web import browser_of

pytestmark = pytest.mark.django_db

NEW = "/imports/"
CREDENTIALS = "/imports/credentials/"
REVIEW = "/sessions/launch/review/"


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def host() -> Host:
    return make_host(group=make_group(name="lab"), gpus=1)


@pytest.fixture
def image(host: Host) -> Image:
    make_root(host)
    image = make_image(reference="gpuplatform/python:3.11", environment="Python", version="3.11")
    make_app(image=image, name="jupyterlab", title="JupyterLab")
    return image


def errors_of(answer: Any) -> dict[str, list[str]]:
    return {name: list(texts) for name, texts in answer.context["form"].errors.items()}


def test_an_address_is_looked_at_first(owner: User, image: Image) -> None:
    typed = {"address": ADDRESS + "/blob/main/first.ipynb", "ref": "", "path": "", "link": "fgpu=0.5"}
    answer = browser_of(owner).post(NEW, typed)
    looked = Import.objects.get()
    assert (looked.target, looked.path, looked.state) == ("LOOK", "first.ipynb", "WAITING")
    assert answer["Location"] == f"/imports/{looked.pk}/?fgpu=0.5"
    page = browser_of(owner).get(answer["Location"]).content.decode()
    assert "Waits for its session" in page
    assert f'action="/imports/{looked.pk}/cancel/?fgpu=0.5"' in page


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"address": ""}, "address"),
        ({"address": "file:///etc/passwd"}, "address"),
        ({"address": "https://user:secret@github.com/a/b"}, "address"),
        ({"address": ADDRESS, "ref": "--upload-pack=x"}, "ref"),
        ({"address": ADDRESS, "path": "../../etc"}, "path"),
        ({"address": ADDRESS, "credential": "999"}, "credential"),
    ],
)
def test_what_cannot_be_imported_is_said_at_its_field(
    owner: User, image: Image, typed: dict[str, str], field: str
) -> None:
    answer = browser_of(owner).post(NEW, typed)
    assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert list(errors_of(answer)) == [field]
    assert not Import.objects.exists()


def test_a_link_with_a_repository_fetches_nothing(owner: User, image: Image) -> None:
    query = f"repo={ADDRESS}&ref=main&path=first.ipynb&image={image.reference}&fgpu=0.5&gpus=3"
    page = browser_of(owner).get(f"/launch?{query}", follow=True)
    assert [page.context["form"][name].value() for name in ("address", "ref", "path")] == [
        *(ADDRESS, "main", "first.ipynb"),
    ]
    assert unquote(page.context["link"]) == f"image={image.reference}&fgpu=0.5"
    assert "The link also says gpus" in page.content.decode()
    assert not Import.objects.exists()


def test_a_link_may_end_with_a_slash(owner: User) -> None:
    answer = browser_of(owner).get("/launch/?fgpu=0.5&image=a:1")
    assert answer["Location"] == "/launch?fgpu=0.5&image=a:1"


def test_what_was_found_is_proposed(owner: User, image: Image) -> None:
    looked = make_import(owner)
    page = browser_of(owner).get(f"/imports/{looked.pk}/").content.decode()
    for text in ("main", "0123456789ab", "3 MiB", "12 files", "requirements.txt", "first.ipynb", "in JupyterLab"):
        assert text in page
    assert 'value="course"' in page, "the folder's name is proposed"


@pytest.mark.parametrize("where", ["new", "folder"])
def test_it_is_fetched_into_a_folder(owner: User, image: Image, where: str) -> None:
    folder = make_folder(owner, root=StorageRoot.objects.get(), name="data")
    looked = make_import(owner, ref="main")
    typed = {"where": where, "folder_name": "course", "folder": folder.pk, "whole_history": "on"}
    answer = browser_of(owner).post(f"/imports/{looked.pk}/?fgpu=0.5", typed)
    begun = Import.objects.exclude(pk=looked.pk).get()
    assert answer["Location"] == f"/imports/{begun.pk}/?fgpu=0.5"
    assert begun.folder
    assert (begun.target, begun.ref, begun.whole_history) == ("FOLDER", "main", True)
    assert begun.folder.name == {"new": "course", "folder": "data"}[where]


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({}, "where"),
        ({"where": "new"}, "folder_name"),
        ({"where": "new", "folder_name": "a/b"}, "folder_name"),
        ({"where": "new", "folder_name": "data"}, "folder_name"),
        ({"where": "folder"}, "folder"),
        ({"where": "folder", "folder": "no-such"}, "folder"),
        ({"where": "folder", "folder": "\0"}, "folder"),
    ],
)
def test_a_wrong_target_is_said_at_its_field(owner: User, image: Image, typed: dict[str, str], field: str) -> None:
    make_folder(owner, root=StorageRoot.objects.get(), name="data")
    looked = make_import(owner)
    answer = browser_of(owner).post(f"/imports/{looked.pk}/", typed)
    assert list(errors_of(answer)) == [field]
    assert Folder.objects.count() == Import.objects.count() == 1


def test_into_the_session_alone_leads_to_the_wizard(owner: User, image: Image) -> None:
    looked = make_import(owner)
    browser = browser_of(owner)
    answer = browser.post(f"/imports/{looked.pk}/?fgpu=0.5", {"where": "session"})
    assert answer["Location"] == f"{REVIEW}?fgpu=0.5&import={looked.pk}"
    form = browser.get(answer["Location"]).context["form"]
    names = ("from_import", "import_installs", "image", "cpu", "memory", "fgpu", "preset")
    assert [form[name].value() for name in names] == [looked.pk, True, image.pk, 2, "2 GiB", "0.5", ""]


def launch_form(image: Image, host: Host, **more: Any) -> dict[str, Any]:
    amounts = {"preset": "", "cpu": "1", "memory": "1g", "shared_memory": "64m", "fgpu": "0", "count": "1"}
    return {"image": image.pk, "resource_group": host.group_id, **amounts, **more}


def test_the_wizard_launches_with_the_import(owner: User, host: Host, image: Image) -> None:
    looked = make_import(owner)
    typed = launch_form(image, host, from_import=looked.pk, import_installs="on", form_key="a" * 16)
    assert "lab/course" in browser_of(owner).post("/sessions/launch/advice/", typed).content.decode()
    browser_of(owner).post("/sessions/launch/", typed)
    launched = Import.objects.get(target=ImportTarget.SESSION)
    assert (launched.session, launched.installs) == (Session.objects.get(), True)


def test_the_wizard_launches_without_what_was_unticked(owner: User, host: Host, image: Image) -> None:
    make_import(owner)
    browser_of(owner).post("/sessions/launch/", launch_form(image, host))
    assert Session.objects.count() == Import.objects.count() == 1


def test_an_import_of_others_is_not_launched(owner: User, host: Host, image: Image) -> None:
    other = make_import(make_user())
    page = browser_of(owner).get(f"{REVIEW}?import={other.pk}")
    assert list(page.context["form"].link_problems) == ["from_import"]
    for chosen in (other.pk, "\0", "x" * 10_000):
        answer = browser_of(owner).post("/sessions/launch/", launch_form(image, host, from_import=chosen))
        assert list(errors_of(answer)) == ["from_import"]
    for path in (f"/imports/{other.pk}/", f"/imports/{other.pk}/cancel/"):
        assert browser_of(owner).post(path).status_code == HTTPStatus.NOT_FOUND


def test_a_folder_that_was_fetched_is_mounted(owner: User, image: Image) -> None:
    folder = make_folder(owner, root=StorageRoot.objects.get(), name="course")
    fetched = make_import(owner, target=ImportTarget.FOLDER, folder=folder, mount_path="/home/work/course")
    page = browser_of(owner).get(f"/imports/{fetched.pk}/")
    form = browser_of(owner).get(page.context["launch_url"]).context["form"]
    assert [row.folder for row in form.folders.chosen] == [folder]


def test_a_failed_import_is_changed_and_tried_again(owner: User, image: Image) -> None:
    failed = make_import(owner, state=ImportState.FAILED, problem="It asks for a log-in.", ref="main")
    page = browser_of(owner).get(f"/imports/{failed.pk}/?fgpu=0.5")
    assert "It asks for a log-in." in page.content.decode()
    again = browser_of(owner).get(page.context["again_url"])
    assert [again.context["form"][name].value() for name in ("address", "ref")] == [ADDRESS, "main"]
    assert again.context["link"] == "fgpu=0.5"


def test_an_import_is_cancelled(owner: User, image: Image) -> None:
    browser_of(owner).post(NEW, {"address": ADDRESS})
    looked = Import.objects.get()
    page = browser_of(owner).post(f"/imports/{looked.pk}/cancel/", follow=True).content.decode()
    looked.refresh_from_db()
    assert looked.state == ImportState.CANCELLED
    assert "Cancelled" in page
    assert "hx-trigger" not in page.partition('id="import"')[2].partition("</div>")[0], "it asks no more"


def test_a_credential_is_added_on_the_way(owner: User, image: Image) -> None:
    browser = browser_of(owner)
    typed = {"address": ADDRESS, "ref": "main", "link": "fgpu=0.5", "add_credential": "1"}
    page = browser.get(browser.post(NEW, typed)["Location"])
    added = {"kind": "token", "name": "lab", "host": "github.com", "secret": "s3cret", "next": page.context["next"]}
    back = browser.get(browser.post(CREDENTIALS, added)["Location"])
    token = ImportCredential.objects.get()
    form, link = back.context["form"], back.context["link"]
    assert [str(form[name].value()) for name in ("address", "ref", "credential")] == [ADDRESS, "main", str(token.pk)]
    assert link == "fgpu=0.5"
    assert "s3cret" not in browser.get(CREDENTIALS).content.decode()


def test_a_deploy_key_shows_its_public_half(owner: User) -> None:
    browser = browser_of(owner)
    browser.post(CREDENTIALS, {"kind": "deploy_key", "name": "course", "host": "github.com"})
    key = ImportCredential.objects.get()
    assert key.public_key.startswith("ssh-ed25519 ")
    assert f'data-copy="{key.public_key}"' in browser.get(CREDENTIALS).content.decode()
    browser.post(f"{CREDENTIALS}{key.pk}/delete/")
    assert not ImportCredential.objects.exists()


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"kind": "token", "name": "lab", "host": "github.com"}, "secret"),
        ({"kind": "token", "name": "lab", "host": "github.com", "secret": "two words"}, "secret"),
        ({"kind": "ssh_key", "name": "lab", "host": "github.com", "secret": "no key"}, "secret"),
        ({"kind": "token", "name": "lab", "host": "10.0.0.1/x", "secret": "t"}, "host"),
        ({"kind": "token", "host": "github.com", "secret": "t"}, "name"),
        ({"kind": "magic", "name": "lab", "host": "github.com", "secret": "t"}, "kind"),
    ],
)
def test_a_wrong_credential_is_said_at_its_field(owner: User, typed: dict[str, str], field: str) -> None:
    answer = browser_of(owner).post(CREDENTIALS, typed)
    assert list(errors_of(answer)) == [field]
    assert "two words" not in answer.content.decode() or field == "secret"
    assert not ImportCredential.objects.exists()


def test_credentials_of_others_are_left_alone(owner: User) -> None:
    browser_of(owner).post(CREDENTIALS, {"kind": "deploy_key", "name": "course", "host": "github.com"})
    key, other = ImportCredential.objects.get(), browser_of(make_user())
    assert other.post(f"{CREDENTIALS}{key.pk}/delete/").status_code == HTTPStatus.NOT_FOUND
    assert key.public_key not in other.get(CREDENTIALS).content.decode()


@pytest.mark.parametrize("way_back", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_the_way_back_stays_on_the_platform(owner: User, way_back: str) -> None:
    typed = {"kind": "token", "name": "lab", "host": "github.com", "secret": "t", "next": way_back}
    assert browser_of(owner).post(CREDENTIALS, typed)["Location"] == CREDENTIALS


def test_a_session_of_an_import_shares_its_repository(owner: User, host: Host, image: Image) -> None:
    session = run_session(owner=owner, host=host, image=image)
    make_import(owner, target=ImportTarget.SESSION, session=session, ref="main", path="first.ipynb")
    link = unquote(browser_of(owner).get(f"/sessions/{session.pk}/share/").context["badge"].link)
    assert f"repo={ADDRESS}&ref=main&path=first.ipynb" in link


def test_a_session_is_launched_again_with_its_import(owner: User, host: Host, image: Image) -> None:
    session = run_session(owner=owner, host=host, image=image)
    launched = make_import(owner, target=ImportTarget.SESSION, session=session, installs=True)
    browser = browser_of(owner)
    form = browser.get(f"{REVIEW}?again={session.pk}").context["form"]
    assert [form[name].value() for name in ("from_import", "import_installs")] == [launched.pk, True]
    typed = launch_form(image, host, from_import=launched.pk, import_installs="on", form_key="a" * 16)
    browser.post("/sessions/launch/", typed)
    assert Import.objects.exclude(pk=launched.pk).get().address == ADDRESS
    fetched = make_import(owner, target=ImportTarget.FOLDER)
    Import.objects.filter(pk=launched.pk).update(origin=fetched)
    assert browser.get(f"{REVIEW}?again={session.pk}").context["form"]["from_import"].value() == fetched.pk


def test_the_launcher_opens_the_file_once_it_is_there(owner: User, host: Host, image: Image) -> None:
    session = run_session(owner=owner, host=host, image=image)
    apps, browser = f"/sessions/{session.pk}/apps/", browser_of(owner)
    launched = make_import(
        *(owner,),
        target=ImportTarget.SESSION,
        session=session,
        mount_path="/home/work",
        state=ImportState.FETCHING,
        progress="Fetching",
    )
    assert "is being fetched" in browser.get(f"{apps}imported/").content.decode()
    Import.objects.filter(pk=launched.pk).delete()
    make_import(owner, target=ImportTarget.SESSION, session=session, mount_path="/home/work")
    assert "Open first.ipynb in JupyterLab" in browser.get(apps).content.decode()
    opened = browser.post(f"{apps}?imported", {"app": "jupyterlab"})
    assert opened["Location"] == f"{apps}jupyterlab/?imported"
    Endpoint.objects.update(state=EndpointState.READY)
    assert browser.get(opened["Location"])["Location"].endswith("/lab/tree/course/first.ipynb")
