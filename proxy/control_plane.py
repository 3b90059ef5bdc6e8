"""What the data plane asks of the control plane: the only two questions that leave the process."""

from typing import Protocol

from proxy.signing import Grant


class ControlPlane(Protocol):
    """Knows who may use which endpoint; the platform's database stands behind it."""

    async def redeem(self, ticket: str, label: str, state_digest: str) -> tuple[Grant, str] | None:
        """Use the ticket up; return its grant and the path to go to, None if it is not good for this endpoint here.

        `state_digest` is the digest of what the browser kept when it was sent to the platform.
        """
        ...

    def used(self, session: str) -> None:
        """Note that somebody uses an app of this session now; called about once a second while it is so."""
        ...
