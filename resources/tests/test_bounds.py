"""The admin says where sessions have no latest end, so that no start can be reserved behind them."""

from datetime import timedelta

import pytest
from django.test import Client

from accounts.models import ResourcePolicy
from resources.hosts import bounds
from tests.factories import make_group, make_policy, make_user

pytestmark = pytest.mark.django_db


def test_the_policy_of_new_users_bounds_their_sessions() -> None:
    assert bounds.of_policy(ResourcePolicy.default()) == ""
    assert "may run for ever" in bounds.of_policy(make_policy())


def test_a_group_names_the_policies_without_a_bound() -> None:
    bounded, unbounded = make_policy(max_lifetime=timedelta(days=1)), make_policy(name="endless")
    closed, everybodys = make_group(open_to_all=False), make_group(open_to_all=True)
    make_user(policy=bounded)
    assert bounds.of_group(everybodys) == ""
    user = make_user(policy=unbounded)
    make_user(policy=unbounded, is_active=False)
    assert bounds.of_group(closed) == ""
    closed.users.add(user)
    for group in (closed, everybodys):
        assert bounds.of_group(group).startswith(
            "1 user of this group has a policy without a lifetime limit (endless):"
        )


def test_the_admin_says_so_where_bounds_are_missing(client: Client) -> None:
    admin = make_user(is_superuser=True, policy=make_policy(name="endless"))
    client.force_login(admin)
    group = make_group()
    assert (
        "may run for ever" in client.get(f"/admin/accounts/resourcepolicy/{admin.policy_id}/change/").content.decode()
    )
    assert "(endless)" in client.get(f"/admin/resources/resourcegroup/{group.pk}/change/").content.decode()
    form = client.get("/admin/accounts/resourcepolicy/add/")
    assert form.context["adminform"].form.initial["max_lifetime"] == timedelta(days=7)
    empty = {"name": "new", "max_extension": "0", "max_lifetime": "", "share_weight": "100", "max_cluster_size": "64"}
    saved = client.post("/admin/accounts/resourcepolicy/add/", empty, follow=True)
    assert ResourcePolicy.objects.get(name="new").max_lifetime is None
    assert "may run for ever" in saved.content.decode()
