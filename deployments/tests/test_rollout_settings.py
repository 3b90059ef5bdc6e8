"""Settings of rollouts: which are possible, and that they are kept."""

from collections.abc import Sequence
from typing import Any

import pytest

from deployments import services
from deployments.models import Deployment
from deployments.tests.making import deployment_request, serving_deployment
from sessions.errors import RejectedError
from tests.factories import make_host, make_user

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("strategy", "sudden"),
        *(("canary_steps", steps) for steps in ([], [0], [100], [5, 5], [50, 5], [True], ["5"], [1.5], "5,50")),
        ("canary_steps", list(range(1, 12))),
        ("step_seconds", 9),
        ("step_seconds", 86_401),
        ("max_error_points", -0.1),
        ("max_error_points", float("nan")),
        ("max_p95_ratio", 0.9),
    ],
)
def test_wrong_settings_of_rollouts_are_errors_at_their_field(field: str, value: Any) -> None:
    owner = make_user()
    with pytest.raises(RejectedError) as refused:
        services.create(owner, deployment_request(host=make_host(), **{field: value}))
    assert set(refused.value.errors) == {field}
    deployment = serving_deployment(1)
    with pytest.raises(RejectedError) as refused:
        services.change(deployment, {field: value}, actor=deployment.owner)
    assert set(refused.value.errors) == {field}


def test_settings_of_rollouts_are_kept_and_changed() -> None:
    deployment = serving_deployment(1, strategy="canary", canary_steps=(10, 20), max_p95_ratio=2.5)
    assert (deployment.strategy, deployment.canary_steps, deployment.max_p95_ratio) == ("canary", [10, 20], 2.5)
    steps: Sequence[int] = (1, 99)
    services.change(deployment, {"canary_steps": steps, "strategy": "blue_green"}, actor=deployment.owner)
    row = Deployment.objects.get(pk=deployment.pk)
    assert (row.strategy, row.canary_steps) == ("blue_green", [1, 99])
