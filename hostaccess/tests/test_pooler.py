"""A pooler of transactions is refused with the reason."""

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from hostaccess.pooler import pooler_problem

pytestmark = pytest.mark.django_db


def test_a_connection_without_its_options_is_refused() -> None:
    assert pooler_problem() == ""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = 0")  # as the server has it where a pooler drops the options
    assert "pgbouncer" in pooler_problem()
    with pytest.raises(CommandError, match="pgbouncer"):
        call_command("hostworker")
