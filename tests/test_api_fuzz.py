"""The API withstands generated requests, as stranger, user, manager and superadmin: no 500, nothing undescribed."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core.handlers.wsgi import WSGIHandler
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from pytest_django import Settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import FailureGroup

from accounts.models import ApiToken
from tests.api_schema import api_schema
from tests.factories import make_project, make_session, make_user, run_session

ROLES = ("stranger", "user", "manager", "superadmin")
EXAMPLES = int(os.environ.get("API_FUZZ_EXAMPLES", "2"))  # of each operation; one takes each role 20 seconds
# Streams have no end, uploads a protocol of their own (folders/tests/test_uploads.py), and sign-ins lock out.
LEFT_OUT = ("/follow/", "/uploads/", "/auth/token/", "/me/password/")
# What a schema cannot say, such as that an image exists, is refused with 400 all the same. All else is checked.
UNCHECKED = {"positive_data_acceptance"}


@pytest.fixture
def tokens(transactional_db: None, settings: Settings) -> dict[str, str]:
    """A token of each role; each user has sessions."""
    settings.COMPUTE_API_REQUESTS_PER_MINUTE = 0
    user, manager, superadmin = make_user(), make_user(), make_user(is_superuser=True)
    make_project(user, managers=(manager,))
    make_session(owner=user)
    run_session(owner=user)
    users = {"user": user, "manager": manager, "superadmin": superadmin}
    return {role: ApiToken.objects.issue(each)[1] for role, each in users.items()}


def operations(below: str) -> Iterator[Any]:
    """Yield the operations that are tried, of paths that begin so."""
    schema = schemathesis.openapi.from_dict(api_schema())
    schema.app = WSGIHandler()
    found: Any = schema.get_all_operations()
    for result in found:
        operation = result.ok()
        if operation.path.startswith(below) and not any(part in operation.path for part in LEFT_OUT):
            yield operation


def fuzz(role: str, token: str, modes: tuple[GenerationMode, ...], examples: int, below: str = "") -> list[str]:
    """Return what was wrong with the responses to generated requests."""
    load_all_checks()
    checks = [check for check in CHECKS.get_all() if check.__name__ not in UNCHECKED]
    headers = {"Authorization": f"Token {token}"} if token else {}
    failures: list[str] = []
    for operation in operations(below):
        for mode in modes:

            @settings(
                max_examples=examples,
                database=None,
                derandomize=True,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def attempt(case: Any) -> None:
                case.call_and_validate(headers=headers, checks=checks)

            try:
                attempt()
            except Unsatisfiable:  # the operation has nothing that could be wrong
                continue
            except FailureGroup as group:
                shown = f"{role}: {mode.value} {operation.method.upper()} {operation.path}"
                failures += [f"{shown}: {error!s}" for error in group.exceptions]
    return failures


def test_bad_requests_to_sessions_are_refused(tokens: dict[str, str]) -> None:
    assert not fuzz("user", tokens["user"], (GenerationMode.NEGATIVE,), 1, below="/api/v1/sessions/{id}/e")


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
def test_generated_requests_find_no_fault(role: str, tokens: dict[str, str]) -> None:
    failures = fuzz(role, tokens.get(role, ""), (GenerationMode.POSITIVE, GenerationMode.NEGATIVE), EXAMPLES)
    assert not failures, "\n\n".join(failures)
