"""Which runtime the settings give."""

import pytest

from hostworker.runtime.factory import get_runtime
from hostworker.runtime.memory.runtime import MemoryRuntime


@pytest.mark.django_db
def test_the_settings_name_the_runtime_and_it_is_made_once() -> None:
    assert isinstance(get_runtime(), MemoryRuntime)
    assert get_runtime() is get_runtime()
