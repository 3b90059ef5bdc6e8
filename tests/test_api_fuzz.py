"""The API withstands generated requests, as stranger, user, manager and superadmin: no 500, nothing undescribed."""

import gc
import os
from collections.abc import Iterator, Mapping
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
EXAMPLES = int(os.environ.get("API_FUZZ_EXAMPLES", "5"))  # of each operation and mode
# Streams have no end; bodies of uploads are taken outside of a request (tests/fuzz/targets/files.py).
LEFT_OUT = ("/follow/", "/uploads/")
# Fields of which a schema cannot say all: names of rows that there must be or must not be, formats with a parser of
# their own, and amounts and times that depend on each other.
UNSAID = frozenset(
    {
        *("owner", "policy", "policies", "project", "projects", "resource_group", "resource_groups", "root", "users"),
        *("user", "image", "version", "preset", "ids", "depends_on", "hosts", "mounts", "environment", "gpu_model"),
        *(
            "address",
            "reference",
            "url",
            "key",
            "csv",
            "yaml",
            "host",
            "email",
            "password",
            "path",
            "new_path",
            "username",
            "command",
        ),
        *(
            "cpu",
            "memory",
            "shared_memory",
            "fgpu",
            "min_fgpu",
            "min_gpu_memory",
            "gpu_memory",
            "min_memory",
            "priority",
        ),
        *("tasks", "variant", "model_folder", "health", "max_surge", "sticky", "allowed_origins"),
        *("ageing", "half_life", "idle_timeout", "low_use_window", "low_use_cpu_percent", "max_extension"),
        *("max_snooze", "max_lifetime", "max_parked_time", "pending_timeout", "preemption_grace"),
        *("reservation_delay", "warning", "by", "host_loss_grace", "start_allowance", "starvation_limit"),
        *("time_limit", "not_before", "starts_at", "ends_at", "since", "until", "end_at", "allow_batch", "__all__"),
    }
)
UNSAID_OF = {"/api/v1/folders/": {"name"}, "/api/v1/folders/{id}/": {"name"}}
# Valid data may be refused with 400 at a field of which the schema cannot say all: see `refused_fields`.
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


class RefusedError(Exception):
    """Data that fits the schema is refused."""


def refused_fields(case: Any, response: Any) -> str:
    """Return the fields at which data that fits the schema was refused, though the schema says all of them."""
    if response.status_code != 400 or not is_text([case.body, dict(case.query or {})]):
        return ""
    fields = {name.partition(".")[0] for name in response.json()["errors"]}
    return ", ".join(sorted(fields - UNSAID - UNSAID_OF.get(case.path, set())))


def is_text(value: Any) -> bool:
    """Return whether no text in the value is blank or has a NUL, which no schema rules out."""
    if isinstance(value, str):
        return bool(value.strip()) and "\0" not in value
    if isinstance(value, Mapping):
        return all(map(is_text, value.values()))
    return all(map(is_text, value)) if isinstance(value, list) else True


def operations(below: str) -> Iterator[Any]:
    """Yield the operations that are tried, of paths that begin so."""
    gc.collect()  # leaks, now: their warnings parse tracebacks, and Python 3.11 cannot parse while it parses
    schema = schemathesis.openapi.from_dict(api_schema())
    schema.app = WSGIHandler()
    schema.config.analysis.constants.enabled = False  # it reads every module of Django, for half a minute
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
                response = case.call_and_validate(headers=headers, checks=checks)
                if case.meta.generation.mode is GenerationMode.POSITIVE and (fields := refused_fields(case, response)):
                    raise RefusedError(f"valid data is refused: {fields}: {case.body!r:.300}")

            try:
                attempt()
            except Unsatisfiable:  # the operation has nothing that could be wrong
                continue
            except RefusedError as error:
                failures.append(f"{role}: {operation.method.upper()} {operation.path}: {error}")
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
