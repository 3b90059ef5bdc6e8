"""Pages and API of images made of sessions: what they show to whom, and what they do."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from accounts.models import User
from resources.models import Image
from sessions.conversion import change_reports
from sessions.conversion import services as conversions
from sessions.models import ChangeReport, Conversion, ReportState, Session
from tests.factories import make_policy, make_user, run_session

pytestmark = pytest.mark.django_db

REPORT: dict[str, Any] = {
    "packages": {"pip": {"added": [{"name": "six", "version": "1.17", "place": "/opt"}], "updated": [], "removed": []}},
    "groups": [{"path": "/opt", "file_count": 3, "size_bytes": 2048, "deleted_count": 1}],
    "own_files": ["/etc/<b>motd</b>"],
    "own_file_count": 1,
    "file_count": 3,
    "size_bytes": 2048,
    "deleted_count": 1,
    "suspicions": [{"path": "/opt/key.pem", "what": "a private key"}],
    "suspicion_count": 1,
    "left_out": [{"path": "/home/work", "count": 7}],
    "is_partial": False,
}


@pytest.fixture
def owner() -> User:
    return make_user(policy=make_policy(allow_conversion=True))


@pytest.fixture
def session(owner: User) -> Session:
    return run_session(owner=owner, name="my-work")


def browser_of(user: User, **headers: Any) -> Client:
    client = Client(**headers)
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def api_of(user: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client


def report_of(session: Session) -> ChangeReport:
    change_reports.request(session)
    asked = change_reports.waiting(session.pk)
    assert asked
    change_reports.store(asked, content=REPORT, recipe="FROM x\n")
    return asked


def image_of(session: Session) -> Image:
    begun = conversions.begin(str(conversions.request(session, actor=session.owner, name="tool", tag="1").pk))
    assert begun
    assert begun.host
    return conversions.finish(begun, begun.host, size_bytes=2048, registry_digest="", recipe="FROM x\n")


def test_the_button_is_for_those_who_may(session: Session) -> None:
    page = f"/sessions/{session.pk}/"
    assert "Save as image" in browser_of(session.owner).get(page).content.decode()
    assert "Save as image" in browser_of(make_user(is_superuser=True)).get(page).content.decode()
    session.owner.policy.allow_conversion = False
    session.owner.policy.save()
    assert "Save as image" not in browser_of(session.owner).get(page).content.decode()
    assert browser_of(session.owner).get(f"{page}convert/").status_code == 404
    assert browser_of(make_user(policy=make_policy(allow_conversion=True))).get(f"{page}convert/").status_code == 404


def test_the_dialog_shows_what_changed_and_escapes_it(session: Session) -> None:
    client = browser_of(session.owner)
    address = f"/sessions/{session.pk}/convert/"
    assert "The host is looking" in client.get(address).content.decode()
    report_of(session)
    text = client.get(address).content.decode()
    for words in ("six", "1.17", "a private key", "/home/work", "&lt;b&gt;motd", "FROM x", "2 KiB"):
        assert words in text
    assert "<b>motd" not in text


def test_a_report_is_asked_for_again_when_it_is_old(session: Session) -> None:
    report_of(session)
    assert change_reports.request(session).state == ReportState.READY
    ChangeReport.objects.update(made_at=timezone.now() - timedelta(hours=1))
    assert change_reports.request(session).state == ReportState.QUEUED


def test_the_form_begins_a_conversion(session: Session) -> None:
    client = browser_of(session.owner)
    fields = {"name": "tool", "tag": "2", "description": ""}
    response = client.post(f"/sessions/{session.pk}/convert/", fields, headers={"HX-Request": "true"})
    assert (response.status_code, "sessions:converting" in response.headers["HX-Trigger"]) == (204, True)
    assert Conversion.objects.get().requested_by == session.owner
    page = client.get(f"/sessions/{session.pk}/").content.decode()
    assert "Waiting for the host" in page
    response = client.post(f"/sessions/{session.pk}/convert/", fields)
    assert response.status_code == 422
    assert "being saved as an image already" in response.content.decode()


def test_the_form_shows_refusals_at_their_fields(session: Session) -> None:
    fields = {"name": "Not Good", "tag": "", "description": ""}
    text = browser_of(session.owner).post(f"/sessions/{session.pk}/convert/", fields).content.decode()
    assert 'id="error-name"' in text
    assert 'id="error-tag"' in text
    assert not Conversion.objects.exists()


def test_the_list_shows_own_images_and_deletes_them(session: Session) -> None:
    image = image_of(session)
    other = browser_of(make_user())
    assert image.reference not in other.get("/sessions/images/").content.decode()
    assert other.post(f"/sessions/images/{image.pk}/delete/").status_code == 404
    client = browser_of(session.owner)
    text = client.get("/sessions/images/").content.decode()
    assert image.reference in text
    assert str(session.host) in text
    assert client.get(f"/sessions/images/{image.pk}/delete/").status_code == 200
    client.post(f"/sessions/images/{image.pk}/delete/")
    assert "is deleted" in client.get("/sessions/images/").content.decode()


def test_the_recipe_is_for_those_who_see_the_session(session: Session) -> None:
    image_of(session)
    address = f"/sessions/conversions/{Conversion.objects.get().pk}/recipe/"
    assert browser_of(session.owner).get(address).content == b"FROM x\n"
    assert browser_of(make_user()).get(address).status_code == 404


def test_the_list_takes_a_constant_number_of_queries(session: Session, django_assert_max_num_queries: Any) -> None:
    for tag in range(5):
        begun = conversions.request(session, actor=session.owner, name="tool", tag=str(tag))
        conversions.begin(str(begun.pk))
        conversions.finish(begun, session.host, size_bytes=1, registry_digest="", recipe="")  # type: ignore[arg-type]
    client = browser_of(session.owner)
    with django_assert_max_num_queries(8):
        assert client.get("/sessions/images/").status_code == 200


def test_the_api_converts_and_lists(session: Session) -> None:
    client = api_of(session.owner)
    base = f"/api/v1/sessions/{session.pk}"
    assert client.get(f"{base}/changes/").status_code == 202
    report_of(session)
    shown = client.get(f"{base}/changes/")
    assert (shown.status_code, shown.json()["report"]["file_count"]) == (200, 3)
    made = client.post(f"{base}/convert/", {"name": "tool"}, format="json")
    assert (made.status_code, made.json()["state"], made.json()["tag"]) == (201, "QUEUED", "1")
    (listed,) = client.get(f"{base}/conversions/").json()["results"]
    assert listed["id"] == made.json()["id"]
    again = client.post(f"{base}/convert/", {"name": "tool", "tag": "2"}, format="json")
    assert (again.status_code, again.json()["errors"]) == (400, {})
    wrong = client.post(f"{base}/convert/", {"name": "", "other": 1}, format="json")
    assert {"name", "other"} <= wrong.json()["errors"].keys()


def test_the_api_refuses_strangers_and_those_who_may_not(session: Session) -> None:
    base = f"/api/v1/sessions/{session.pk}"
    stranger = api_of(make_user(policy=make_policy(allow_conversion=True)))
    assert stranger.post(f"{base}/convert/", {"name": "tool"}, format="json").status_code == 404
    session.owner.policy.allow_conversion = False
    session.owner.policy.save()
    assert api_of(session.owner).post(f"{base}/convert/", {"name": "tool"}, format="json").status_code == 403
    assert api_of(session.owner).get(f"{base}/changes/").status_code == 403


def test_the_api_deletes_images_that_nothing_uses(session: Session) -> None:
    image = image_of(session)
    assert api_of(make_user()).delete(f"/api/v1/private-images/{image.pk}/").status_code == 404
    client = api_of(session.owner)
    (listed,) = client.get("/api/v1/private-images/").json()["results"]
    assert (listed["reference"], listed["is_local"], listed["hosts"]) == (image.reference, True, [str(session.host)])
    user = run_session(owner=session.owner, image=image)
    assert client.delete(f"/api/v1/private-images/{image.pk}/").status_code == 409
    Session.objects.filter(pk=user.pk).update(image=session.image)
    assert client.delete(f"/api/v1/private-images/{image.pk}/").status_code == 204
    assert client.get("/api/v1/private-images/").json()["results"] == []


def test_the_admin_action_leads_to_the_page(session: Session) -> None:
    client = browser_of(make_user(is_superuser=True))
    fields = {"action": "convert", "_selected_action": [session.pk]}
    response = client.post("/admin/compute/session/", fields)
    assert response.headers["Location"] == f"/sessions/{session.pk}/convert/"
    response = client.post("/admin/compute/session/", fields | {"_selected_action": [session.pk, run_session().pk]})
    assert response.headers["Location"] == "/admin/compute/session/"


def test_a_stranger_learns_nothing_by_the_full_name(session: Session) -> None:
    reference = image_of(session).reference
    stranger = api_of(make_user(policy=make_policy(allow_conversion=True, allow_unlisted_images=True)))
    body = {"resource_group": session.resource_group.name, "cpu": 1, "memory": "1g", "image": reference}
    refused = stranger.post("/api/v1/sessions/", body, format="json")
    unknown = stranger.post("/api/v1/sessions/", body | {"image": f"{reference}0"}, format="json")
    assert (refused.status_code, refused.json()) == (unknown.status_code, unknown.json())
    assert "image" in refused.json()["errors"]
    assert reference not in stranger.get("/api/v1/images/").content.decode()
    own = api_of(session.owner).post("/api/v1/sessions/", body, format="json")
    assert own.status_code == 201, own.json()
