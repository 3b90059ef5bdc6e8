"""For pytest: the one fixture that numba-cuda's tests have in their repository, and not in the wheel."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request: pytest.FixtureRequest) -> None:
    request.cls._dump_failed_filechecks = False
