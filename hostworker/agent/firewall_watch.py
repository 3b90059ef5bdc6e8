"""Keeps the packet filter rules of this host's bridge, as the host's resource group wants them."""

from hostworker.privileged.host_privileges import HostPrivileges
from resources.models import Host, Installation, ResourceGroup


class FirewallWatch:
    """Holds the rules of one host; a change of its group, or to another group, counts from the next call on."""

    def __init__(self, host: Host, privileges: HostPrivileges, device: str) -> None:
        self._host = host
        self._privileges = privileges
        self._device = device
        self._worker = f"{Installation.current_key()}/{host.name}"
        self._deny_private = self._wanted()

    def hold(self) -> None:
        """Have the rules in place; those that were last wanted where the database does not answer.

        Raises FirewallError, and what the database raises.
        """
        try:
            self._deny_private = self._wanted()
        finally:
            self._privileges.hold_firewall(self._device, self._worker, deny_private=self._deny_private)

    def _wanted(self) -> bool:
        return ResourceGroup.objects.values_list("deny_private_networks", flat=True).get(hosts=self._host)
