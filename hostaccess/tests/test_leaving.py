"""A host that has joined leaves by itself, with its own credentials, and takes no other out of service."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from hostaccess.models import HostAccess
from resources import clock
from resources.models import Host
from sessions.lifecycle import Reason
from sessions.models import SessionEvent
from tests.factories import make_host, run_session
from tests.joined_hosts import environment
from tests.wait import SECONDS, until

ROOT = Path(__file__).resolve().parents[2]


def test_a_joined_host_leaves_once_its_sessions_ended(
    variables: dict[str, str], host_connection: psycopg.Connection[Any]
) -> None:
    group = HostAccess.objects.get(name="gpu7").group
    own, other = make_host(name="gpu7", group=group), make_host(name="gpu8")
    session, elsewhere = run_session(host=own), run_session(host=other)
    command = [sys.executable, "manage.py", "leavehost", "--seconds", "660"]
    var = {"COMPUTE_VAR_DIR": os.environ["COMPUTE_VAR_DIR"]}
    with subprocess.Popen(command, cwd=ROOT, env=environment(variables) | var) as leaving:
        events = SessionEvent.objects.filter(reason=Reason.HOST_DRAINED)
        until(events.exists)
        assert [event.session_id for event in events] == [session.pk]
        own.refresh_from_db()
        assert own.is_cordoned
        assert own.drain_by is not None
        assert timedelta(minutes=9) < own.drain_by - clock.now() < timedelta(minutes=10)
        assert leaving.poll() is None, "it waits for its sessions"
        session.delete()
        assert leaving.wait(SECONDS) == 0
    assert not Host.objects.get(pk=other.pk).is_cordoned
    drain = "UPDATE resources_host SET is_cordoned = true, drain_by = now() WHERE name = 'gpu8'"
    assert host_connection.execute(drain).rowcount == 0
    assert not elsewhere.events.filter(reason=Reason.HOST_DRAINED).exists()
