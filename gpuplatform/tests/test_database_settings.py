"""What a connection to PostgreSQL is given, so that neither side waits for ever for the other."""

import pytest
from django.db import connection


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["lock_timeout", "idle_in_transaction_session_timeout"])
def test_no_lock_and_no_transaction_is_held_for_ever(name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {name}")
        assert cursor.fetchone() != ("0",)
