"""What the arbiter is told of the host's group."""

from pathlib import Path

import pytest

from hostworker.enforcement.arbiter import Arbiter
from hostworker.enforcement.arbiter_folder import ArbiterFolder
from hostworker.enforcement.programs import Programs
from hostworker.gpus.arbiter_watch import ArbiterWatch
from tests.factories import make_group, make_host


@pytest.mark.django_db
def test_leases_of_running_sessions_follow_the_group(tmp_path: Path) -> None:
    host = make_host(group=make_group(sharing="burst"))
    folder = ArbiterFolder(tmp_path / "arbiter")
    watch = ArbiterWatch(host, Arbiter(Programs(build=tmp_path, store=tmp_path / "store"), folder))
    watch.poll()
    lease = folder.prepare(("session", 1), "version=2\nsharing=cap\nend\n").grant.with_name("lease.conf")
    watch.poll()
    assert "sharing=burst" in lease.read_text()
    host.group.sharing = "cap"
    host.group.save()
    watch.poll()
    assert "sharing=cap" in lease.read_text()
