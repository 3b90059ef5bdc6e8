"""The gallery of launch templates: searched, filled in, opened in the wizard, saved from what runs, and shared."""

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from deployments.tests.making import make_deployment
from sessions.models import Session
from specs.launch_templates.services import content_of
from specs.models import LaunchTemplate, TemplateLaunch
from specs.tests.template_rows import TEXT, make_template
from specs.tests.worlds import make_owner
from tests.factories import make_project, make_user, run_session

URL = "/sessions/launch/templates/"
pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(tmp_path: Path) -> User:
    return make_owner(tmp_path)


@pytest.fixture
def page(client: Client, owner: User) -> Client:
    client.force_login(owner)
    return client


def html(answer: Any) -> str:
    text: str = answer.content.decode()
    return text


def saved(page: Client, address: str = f"{URL}new/", **changes: str) -> Any:
    fields = {"name": "tune", "icon": "gpu", "color": "green", "holder": "", "parameters": "", "save": "1"}
    launch = "kind: session\r\nimage: lab/pytorch:2\r\ncpu: 1\r\nmemory: 1g\r\n"
    return page.post(address, {**fields, "launch": launch, **changes})


def test_the_gallery_says_what_to_do_first(page: Client) -> None:
    assert "There is no template yet" in html(page.get(URL))
    assert "There is none yet." in html(page.get("/sessions/launch/"))


def test_an_edit_of_what_others_have_saved_is_said_first(page: Client, owner: User) -> None:
    address = f"{URL}{make_template(owner).pk}/edit/"
    shown = page.get(address).context["form"].initial
    assert saved(page, address, **{**shown, "description": "theirs"}).status_code == 302
    refused = saved(page, address, **{**shown, "description": "mine"})
    assert (refused.status_code, "saved version 2 since" in html(refused)) == (422, True)
    assert 'name="version" value="2"' in html(refused)
    again = dict(refused.context["form"].data)
    assert page.post(address, again).status_code == 302
    assert LaunchTemplate.objects.get().description == "mine"


def test_the_gallery_is_searched(page: Client, owner: User) -> None:
    make_template(owner)
    make_template(owner, name="serve", description="Chat for the lab")
    make_template(make_user(), name="somebody-elses")
    assert "somebody-elses" not in html(page.get(URL))
    found = html(page.get(URL, {"q": "CHAT"}))
    assert "serve" in found
    assert "train" not in found
    assert "No template says this" in html(page.get(URL, {"q": "x\0y"}))
    assert "serve" in html(page.get("/sessions/launch/"))


def test_a_template_is_launched_at_once(page: Client, owner: User) -> None:
    template = make_template(owner)
    address = f"{URL}{template.pk}/"
    assert 'value="0.1"' in html(page.get(address))
    answer = page.post(address, {"value-lr": "0.5", "version": "1", "launch": "1"})
    session = Session.objects.get()
    assert answer.headers["Location"] == f"/sessions/{session.pk}/"
    assert session.command == "python train.py --lr 0.5"
    shown = html(page.get(f"/sessions/{session.pk}/"))
    assert f'href="{address}">train</a>' in shown
    template.delete()
    assert "version 1" in html(page.get(f"/sessions/{session.pk}/"))


def test_a_mistake_stands_at_its_field(page: Client, owner: User) -> None:
    template = make_template(owner)
    answer = page.post(f"{URL}{template.pk}/", {"value-lr": "high", "launch": "1"})
    assert answer.status_code == 422
    assert "A valid number is required." in html(answer).partition('id="id_value-lr_error"')[2][:100]
    refused = make_template(owner, TEXT.replace("lab/pytorch:2", "no/such:1"), name="gone")
    answer = page.post(f"{URL}{refused.pk}/", {"launch": "1"})
    assert "image:" in html(answer)
    assert not Session.objects.exists()


def test_the_wizard_is_filled_in_and_counts(page: Client, owner: User) -> None:
    template = make_template(owner)
    answer = page.post(f"{URL}{template.pk}/", {"value-lr": "0.5", "wizard": "1"})
    assert answer.status_code == 200
    assert "python train.py --lr 0.5" in html(answer)
    named = f"{template.pk}:1"
    assert f'name="from_template" value="{named}"' in html(answer)
    form = answer.context["form"]
    fields = {
        "image": form.initial["image"],
        "resource_group": form.initial["resource_group"],
        "cpu": "1",
        "count": "1",
    }
    sent = {**fields, "memory": "1g", "shared_memory": "64m", "fgpu": "0", "preset": "", "from_template": named}
    page.post("/sessions/launch/", sent)
    assert TemplateLaunch.objects.get().session == Session.objects.get()
    template.refresh_from_db()
    assert template.launches == 1


def test_a_session_is_saved_with_its_secrets_asked_for(page: Client, owner: User) -> None:
    session = run_session(owner=owner, environment={"HF_TOKEN": "hf_abc", "SEED": "7"}, command="train", kind="batch")
    assert f'href="{URL}new/?session={session.pk}"' in html(page.get(f"/sessions/{session.pk}/"))
    answer = page.get(f"{URL}new/", {"session": session.pk})
    shown = answer.context["form"].initial
    assert "hf_abc" not in html(answer)
    sent = {**shown, "name": "mine", "launch": shown["launch"].replace("\n", "\r\n"), "save": "1"}
    asked = page.post(f"{URL}new/", {**sent, "ask_now": "1", "ask": ["env.SEED", "command"]}).context["form"].initial
    assert (
        saved(page, **{"name": "mine", **{name: asked[name] for name in ("launch", "parameters")}}).status_code == 302
    )
    said = content_of(LaunchTemplate.objects.get().current)
    assert said["launch"]["env"] == {"HF_TOKEN": "${{ hf_token }}", "SEED": "${{ seed }}"}
    assert [each.get("default") for each in said["parameters"]] == [None, "train", "7"]


def test_mistakes_of_a_template_stand_at_their_line(page: Client) -> None:
    launch = "kind: session\nimage: lab/pytorch:2\ncpu: many\nmemory: 1g\n"
    assert "Line 3, cpu:" in html(saved(page, launch=launch))
    assert "Line 2" in html(saved(page, launch="kind: session\n\tcpu: 1"))
    assert "Write a list of parameters." in html(saved(page, parameters="lr: 1"))
    assert "Line 3, default:" in html(saved(page, parameters="- name: lr\n  type: integer\n  default: x\n"))
    assert saved(page, holder="everybody").status_code == 422
    assert saved(page, name="").status_code == 422
    assert not LaunchTemplate.objects.exists()


def test_versions_are_compared_and_made_current(page: Client, owner: User) -> None:
    template = make_template(owner)
    address = f"{URL}{template.pk}/"
    shown = page.get(f"{address}edit/").context["form"].initial
    assert saved(page, f"{address}edit/", **{**shown, "launch": shown["launch"].replace("1g", "2g")}).status_code == 302
    compared = html(page.get(f"{address}versions/"))
    assert "+   memory: 2g" in compared
    assert "-   memory: 1g" in compared
    assert page.post(f"{address}versions/", {"version": "1"}).status_code == 302
    template.refresh_from_db()
    assert template.version == 1
    assert page.get(f"{address}versions/", {"old": "7"}).status_code == 404
    sent = page.get(f"{address}export/")
    assert sent.content.decode() == template.current.text
    assert page.post(f"{address}delete/").status_code == 302
    assert not LaunchTemplate.objects.exists()


def test_members_may_launch_and_not_change(page: Client, owner: User) -> None:
    manager = make_user()
    project = make_project(owner, managers=[manager], name="vision")
    template = make_template(project=project)
    address = f"{URL}{template.pk}/"
    assert "Edit" not in html(page.get(address)).partition("About this template")[2]
    assert [page.get(f"{address}edit/").status_code, page.post(f"{address}delete/").status_code] == [404, 404]
    assert page.post(f"{address}versions/", {"version": "1"}).status_code == 404
    page.force_login(manager)
    assert "members of vision" in html(page.get(f"{address}edit/"))
    page.force_login(make_user())
    assert page.get(address).status_code == 404


def test_files_and_the_wizard_become_templates(page: Client, owner: User) -> None:
    text = "kind: session\nname: train\nimage: lab/pytorch:2\ncpu: 1\nmemory: 1g\n"
    checked = html(page.post("/sessions/launch/file/", {"text": text, "check": "1"}))
    assert f'formaction="{URL}new/"' in checked
    shown = page.post(f"{URL}new/", {"text": text, "image": "", "from_file": "1"})
    assert shown.context["form"].initial["launch"] == text
    assert page.post(f"{URL}new/", {"text": "kind: folder\nname: x", "from_file": "1"}).status_code == 404
    begun = page.get("/sessions/launch/").context["form"].initial
    fields = {"form_key": "k", "image": begun["image"], "resource_group": begun["resource_group"], "preset": ""}
    amounts = {"cpu": "2", "memory": "2g", "shared_memory": "64m", "fgpu": "0.5", "count": "1", "cluster_size": "2"}
    launch = page.post(f"{URL}new/", {**fields, **amounts, "command": "train"}).context["form"].initial["launch"]
    assert saved(page, launch=launch).status_code == 302
    assert LaunchTemplate.objects.get().kind == "cluster"
    assert page.post(f"{URL}new/", {**fields, **amounts, "cpu": "many"}).status_code == 422


def test_a_deployment_becomes_a_template(page: Client, owner: User) -> None:
    deployment = make_deployment(owner)
    address = f"{URL}new/?deployment={deployment.pk}"
    assert address in html(page.get(f"/deployments/{deployment.pk}/"))
    assert "name: ${{ name }}" in page.get(address).context["form"].initial["launch"]
    page.force_login(make_user())
    assert page.get(address).status_code == 404
    assert page.get(f"{URL}new/?session=a%00").status_code == 404


def test_a_link_leads_to_the_template(page: Client, owner: User) -> None:
    template = make_template(owner)
    assert page.get("/launch", {"template": template.pk}).headers["Location"] == f"{URL}{template.pk}/"
    assert f"/launch?template={template.pk}" in html(page.get(f"{URL}{template.pk}/"))


@pytest.mark.parametrize(
    "text",
    ["kind: session\nimage: lab/pytorch:2\nenv:\n", "kind: session\nenv: [A_TOKEN]\n", "kind: deployment\nport: 80\n"],
    ids=["no_variables", "list_of_variables", "no_name"],
)
def test_an_unfinished_file_begins_a_template(page: Client, text: str) -> None:
    assert page.post(f"{URL}new/", {"from_file": "1", "text": text}).status_code == 200


def test_odd_names_of_fields_are_asked_for(page: Client) -> None:
    fields = {"name": "tune", "icon": "gpu", "color": "green", "launch": "kind: session\na.b: 1\n", "ask_now": "1"}
    assert page.post(f"{URL}new/", {**fields, "ask": "a.b"}).status_code == 200
