"""Fixtures of tests of the host worker."""

import pytest

from hostworker.tests.fault_injection import FaultInjectingRuntime


@pytest.fixture
def runtime() -> FaultInjectingRuntime:
    """An engine of its own, in memory."""
    return FaultInjectingRuntime()
