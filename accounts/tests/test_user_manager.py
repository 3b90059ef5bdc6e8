"""Tests of how users are made."""

import pytest
from allauth.account.models import EmailAddress
from pytest_django import DjangoAssertNumQueries

from accounts.models import ResourcePolicy, User
from tests.factories import make_policy

pytestmark = pytest.mark.django_db


def test_a_user_with_a_policy_needs_no_default_one() -> None:
    ResourcePolicy.objects.filter(name="default").delete()
    policy = make_policy()
    user = User.objects.create_user("Ada@Example.org", policy=policy)
    assert (user.email, user.policy) == ("ada@example.org", policy)
    assert not ResourcePolicy.objects.filter(name="default").exists()


def test_a_user_without_one_has_the_default_policy() -> None:
    assert User.objects.create_user("ada@example.org").policy == ResourcePolicy.default()


def test_a_new_user_has_one_address_in_two_statements(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    policy = make_policy()
    with django_assert_num_queries(2):
        user = User.objects.create_user("Ada@Example.org", policy=policy)
    assert [*EmailAddress.objects.values_list("user", "email", "verified", "primary")] == [
        (user.pk, "ada@example.org", True, True)
    ]
