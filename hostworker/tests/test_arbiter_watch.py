"""What the arbiter is told of the host's group."""

from pathlib import Path

import pytest

from hostworker.agent.due_work import DueWork, Work
from hostworker.enforcement.arbiter import Arbiter
from hostworker.enforcement.arbiter_folder import ArbiterFolder
from hostworker.enforcement.programs import Programs
from hostworker.gpus.arbiter_watch import ArbiterWatch
from tests.factories import make_group, make_host


def ask(due: DueWork) -> None:
    due.forget()
    for _ in range(2):  # at first everything is due
        due.is_due(Work.PULLS)


@pytest.mark.django_db
def test_leases_of_running_sessions_follow_the_group(tmp_path: Path) -> None:
    host = make_host(group=make_group(sharing="burst"))
    due = DueWork(host)
    folder = ArbiterFolder(tmp_path / "arbiter")
    arbiter = Arbiter(Programs(build=tmp_path, store=tmp_path / "store"), folder)
    watch = ArbiterWatch(arbiter, lambda: due.sharing)
    watch.poll()
    lease = folder.prepare(("session", 1), "version=2\nsharing=cap\nend\n").grant.with_name("lease.conf")
    watch.poll()
    assert "sharing=cap" in lease.read_text()  # nothing is known yet
    ask(due)
    watch.poll()
    assert "sharing=burst" in lease.read_text()
    host.group.sharing = "cap"
    host.group.save()
    ask(due)
    watch.poll()
    assert "sharing=cap" in lease.read_text()
