"""The endpoint by which a deployment reaches a replica: it is nobody's to close, and counts for no limit of apps."""

import pytest
from django.conf import settings

from deployments.models import Deployment
from deployments.tests.making import serving_deployment
from endpoints import services
from sessions.errors import RejectedError
from sessions.models import Endpoint, EndpointState
from tests.factories import make_app, make_host, run_session
from tests.web import browser_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def deployment() -> Deployment:
    return serving_deployment(1, host=make_host(name=settings.COMPUTE_HOST_NAME))


@pytest.fixture
def endpoint(deployment: Deployment) -> Endpoint:
    return Endpoint.objects.get(session__replica__deployment=deployment)


def test_the_endpoint_of_a_replica_cannot_be_closed(endpoint: Endpoint) -> None:
    owner = endpoint.session.owner
    with pytest.raises(RejectedError) as refused:
        services.close(endpoint, actor=owner)
    assert set(refused.value.errors) == {"app"}
    browser = browser_of(owner)
    page = browser.post(f"/sessions/{endpoint.session_id}/apps/serve/close/")
    assert (page.status_code, "Its deployment reaches it there." in page.content.decode()) == (422, True)
    api = browser.delete(f"/api/v1/sessions/{endpoint.session_id}/apps/serve/")
    assert api.status_code == 400
    endpoint.refresh_from_db()
    assert endpoint.state == EndpointState.READY


def test_replicas_leave_room_for_apps(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_OPEN_OF_OWNER", 1)
    owner = endpoint.session.owner
    session = run_session(host=endpoint.session.host, owner=owner)
    make_app(session.image)
    assert services.open_app(session, "jupyter", actor=owner).endpoint.pk
