"""The card of a rollout by steps on the page of a deployment: both revisions side by side, and its buttons."""

import pytest
from django.test import Client

from deployments.models import Deployment, StepwiseRollout
from deployments.replicas.reconciliation import reconcile
from deployments.tests.rolling import answer, begun, grow
from tests.factories import make_project, make_user

pytestmark = pytest.mark.django_db


def page_of(client: Client, deployment: Deployment) -> str:
    answer = client.get(f"/deployments/{deployment.pk}/", headers={"HX-Request": "true"})
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_rollout_by_steps_has_a_card(client: Client) -> None:
    deployment = begun()
    answer(deployment, 1, 190, 19)
    answer(deployment, 2, 10)
    reconcile(deployment.pk)
    client.force_login(deployment.owner)
    page = page_of(client, deployment)
    for text in ("Rollout of revision 2", "step 1 of 2", "<td>190</td>", "19 (10.0 %)", "0 (0.0 %)"):
        assert text in page
    assert page.count("Revision 2 gets 5 % of the requests.") == 2  # on the card and as an event, not as a problem
    client.post(f"/deployments/{deployment.pk}/promote/")
    page = page_of(client, deployment)
    assert "It gets 50 % when its replicas are healthy." in page
    assert ('id="promote"' in page, 'id="abort"' in page) == (False, True)
    grow(deployment)
    assert "step 2 of 2" in page_of(client, deployment)
    client.post(f"/deployments/{deployment.pk}/rollback/")
    assert 'id="steps"' not in page_of(client, deployment)
    assert not StepwiseRollout.objects.exists()
    client.post(f"/deployments/{deployment.pk}/promote/")
    assert "No rollout by steps is under way." in client.get(f"/deployments/{deployment.pk}/").content.decode()


def test_members_see_the_card_without_its_buttons(client: Client) -> None:
    member = make_user()
    deployment = begun(2, "blue_green")
    Deployment.objects.update(project=make_project(deployment.owner, member))
    client.force_login(member)
    page = page_of(client, deployment)
    assert "replicas of revision 1 stay for 60 seconds" in page
    assert ('id="promote"' in page, 'id="abort"' in page) == (False, False)


def test_all_now_passes_every_step(client: Client) -> None:
    deployment = begun()
    client.force_login(deployment.owner)
    assert 'id="promote-all"' in page_of(client, deployment)
    shown = client.post(f"/deployments/{deployment.pk}/promote/", {"to_all": "yes"}, follow=True).content.decode()
    assert "The new revision gets all requests." in shown
    assert not StepwiseRollout.objects.exists()
