"""What the data plane asks the control plane: the only calls that leave the process."""

from typing import Protocol

from proxy.authorization.signing import Grant


class ControlPlane(Protocol):
    """Knows who may use which endpoint; the platform's database stands behind it."""

    async def redeem(self, ticket: str, label: str, state_digest: str) -> tuple[Grant, str] | None:
        """Use up a ticket; return its grant and the path to redirect to, None if it is not valid for this endpoint.

        `state_digest` is the digest of the nonce that the browser kept when it was redirected to the platform.
        """
        ...

    async def look(self, label: str) -> None:
        """Have the host look why a READY app refuses connections; its route's condition says what was found."""
        ...

    def used(self, session: str) -> None:
        """Record that an app of the session is in use; called about once a second while it is."""
        ...
