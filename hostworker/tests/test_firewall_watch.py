"""The packet filter rules follow the group that the host is in."""

import pytest
from django.db import OperationalError

from hostworker.agent.firewall_watch import FirewallWatch
from hostworker.privileged.host_privileges import HostPrivileges
from resources.models import ResourceGroup
from tests.factories import make_group, make_host

pytestmark = pytest.mark.django_db


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The devices whose rules were held, and whether private networks were denied; no rule is really written."""
    calls: list[tuple[str, bool]] = []

    def note(_: HostPrivileges, device: str, worker: str, deny_private: bool) -> None:
        calls.append((device, deny_private))

    monkeypatch.setattr(HostPrivileges, "hold_firewall", note)
    return calls


def test_rules_follow_the_group_of_a_running_host(held: list[tuple[str, bool]]) -> None:
    host = make_host(group=make_group())
    watch = FirewallWatch(host, HostPrivileges(), "gp0")
    watch.hold()
    ResourceGroup.objects.filter(pk=host.group_id).update(deny_private_networks=True)
    watch.hold()
    type(host).objects.update(group=make_group())
    watch.hold()
    assert held == [("gp0", False), ("gp0", True), ("gp0", False)]


def test_rules_are_held_as_last_wanted_without_the_database(
    held: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = FirewallWatch(make_host(group=make_group(deny_private_networks=True)), HostPrivileges(), "gp0")

    def fail(_: FirewallWatch) -> bool:
        raise OperationalError("the connection is lost")

    monkeypatch.setattr(FirewallWatch, "_wanted", fail)
    with pytest.raises(OperationalError):
        watch.hold()
    assert held == [("gp0", True)]
