"""The SSH server: who connects, how many, and for how long. What happens in a channel is `channel`'s affair."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncssh
from channels.db import database_sync_to_async
from django.db import Error

from accounts.public_keys import InvalidPublicKeyError, public_key_from
from sshserver.access import Guest, NoEntry, find_guest, note_entry, still_welcome
from sshserver.attempts import Attempts
from sshserver.carrier import Carrier
from sshserver.channel import Channel
from sshserver.forward import OWN_NAMES, Forward

logger = logging.getLogger(__name__)

LOGIN_SECONDS: Final = 20
CHECK_SECONDS: Final = 0.7  # between two looks at who is still welcome; with the query, within a second
KEEPALIVE_SECONDS: Final = 30  # three unanswered end a connection
KEYS_OFFERED: Final = 12  # of one connection; an agent may hold many
MOST_STRANGERS: Final = 100  # connections that have not logged in yet
MOST_OF_A_USER: Final = 40  # connections
MOST_CHANNELS: Final = 10  # of one connection
MOST_FORWARDED: Final = 50  # channels of one connection, forwarded connections included
LEAVE_SECONDS: Final = 5.0  # for the processes of all connections to be ended when the front is stopped


class SshFront:
    """All connections of this process. `used` is told the session's id whenever its user does something."""

    def __init__(self, used: Callable[[str], None]) -> None:
        self.used = used
        self.attempts = Attempts()
        self.connections: set[Connection] = set()
        self.channels: set[Carrier] = set()

    @asynccontextmanager
    async def listening(self, host: str, port: int, host_key: asyncssh.SSHKey) -> AsyncIterator[int]:
        """Let people in during the block, which gets the port, then end all. Raises OSError for a bad address."""
        server = await asyncssh.create_server(
            lambda: Connection(self),
            host,
            port,
            server_host_keys=[host_key],
            server_version="GPUPlatform",
            encoding=None,
            line_editor=False,
            agent_forwarding=False,
            gss_host=None,
            compression_algs=None,
            login_timeout=LOGIN_SECONDS,
            keepalive_interval=KEEPALIVE_SECONDS,
        )
        watch = asyncio.create_task(self._watch())
        logger.info("SSH at %s port %d, host key %s", host, server.get_port(), host_key.get_fingerprint())
        try:
            yield server.get_port()
        finally:
            server.close()
            watch.cancel()
            await self._leave()

    async def _leave(self) -> None:
        left = [asyncio.create_task(channel.finished()) for channel in self.channels]
        for connection in list(self.connections):
            connection.end("The platform is being restarted.")
        if left:
            await asyncio.wait(left, timeout=LEAVE_SECONDS)

    async def _watch(self) -> None:
        """End the connections whose session, account or key is no more."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            inside = {connection.guest for connection in self.connections if connection.guest}
            if not inside:
                continue
            try:
                welcome = await database_sync_to_async(still_welcome)(inside)
            except Error as error:
                logger.warning("SSH: could not look who is still welcome, will try again: %s", error)
                continue
            for connection in list(self.connections):
                if connection.guest in inside and connection.guest not in welcome:
                    connection.end("The session, the account or the key that opened this is no more.")


class Connection(asyncssh.SSHServer):
    """One client, from its first byte to its last."""

    def __init__(self, front: SshFront) -> None:
        self._front = front
        self._link: asyncssh.SSHServerConnection | None = None
        self._address = ""
        self._channels: set[Carrier] = set()
        self._offered = 0
        self._found: Guest | NoEntry | None = None  # by the key offered last, which need not be proven yet
        self._is_proven = False
        self.guest: Guest | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Take the client, or drop it where too many of its kind are here."""
        self._link, self._address = conn, str(conn.get_extra_info("peername", ("",))[0])
        strangers = sum(other.guest is None for other in self._front.connections)
        self._front.connections.add(self)
        if self._front.attempts.is_blocked(self._address, time.monotonic()) or strangers >= MOST_STRANGERS:
            logger.info("SSH: dropped a connection from %s: too many failures or strangers", self._address)
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client; one that offered keys and never got in counts as a failure."""
        self._link = None
        self._front.connections.discard(self)
        if self._offered and not self._is_proven:
            failures = self._front.attempts.failed(self._address, time.monotonic())
            logger.warning("SSH: no key of a client at %s was accepted (%d times lately)", self._address, failures)

    def begin_auth(self, username: str) -> bool:
        """Ask everybody for a key."""
        return True

    def public_key_auth_supported(self) -> bool:
        """Offer log-in by key, and by nothing else."""
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Return whether somebody has this key; that the client has its private half is checked by the library.

        Nothing comes between the last such answer and `auth_completed`, so that the key found last is the proven one.
        """
        self._offered, self._found = self._offered + 1, None
        if self._offered > KEYS_OFFERED:
            raise asyncssh.DisconnectError(
                asyncssh.DISC_NO_MORE_AUTH_METHODS_AVAILABLE, "Too many keys offered; name one with ssh -i."
            )
        try:
            offered = public_key_from(key.export_public_key().decode())
            self._found = await database_sync_to_async(find_guest)(username, offered)
        except InvalidPublicKeyError:
            return False
        except Error as error:
            logger.warning("SSH: nobody can log in, the database does not answer: %s", error)
            raise asyncssh.DisconnectError(asyncssh.DISC_SERVICE_NOT_AVAILABLE, "Try again in a moment.") from error
        return self._found is not None

    async def auth_completed(self) -> None:
        """Let the guest in, or say why there is nothing to enter."""
        self._is_proven = True
        self._front.attempts.succeeded(self._address)
        if not isinstance(self._found, Guest):
            self.end(self._found.words if self._found else "There was no key.")
            return
        guests = [other.guest for other in self._front.connections if other.guest]
        if sum(guest.user_id == self._found.user_id for guest in guests) >= MOST_OF_A_USER:
            self.end(f"You have {MOST_OF_A_USER} SSH connections already.")
            return
        self.guest = self._found  # before anything is waited for: the client asks for a channel at once
        logger.info("session %s: %s came by SSH from %s", self.guest.session_id, self.guest, self._address)
        try:
            await database_sync_to_async(note_entry)(self.guest)
        except Error as error:
            logger.warning("SSH: the use of key %s could not be noted: %s", self.guest.key_id, error)

    def session_requested(self) -> Channel:
        """Return a new channel to the session. Raises ChannelOpenError where there are enough."""
        if self.guest is None or sum(isinstance(each, Channel) for each in self._channels) >= MOST_CHANNELS:
            reason = f"No more than {MOST_CHANNELS} at once."
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, reason)
        channel = Channel(self.guest, self._used, self._forget)
        self._keep(channel)
        return channel

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:
        """Return what connects to a port of the session's own. Raises ChannelOpenError for any other place."""
        if self.guest is None or dest_host not in OWN_NAMES or len(self._channels) >= MOST_FORWARDED:
            reason = f"Only localhost of the session can be forwarded to, {MOST_FORWARDED} times at once."
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, reason)
        return self._forward(self.guest, dest_port)

    async def _forward(self, guest: Guest, port: int) -> Forward:
        forward = await Forward.connect(port, guest, self._used, self._forget)
        if self._link is None:  # the client has left meanwhile
            await forward.hang_up()
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "The connection is closed.")
        self._keep(forward)
        return forward

    def end(self, words: str) -> None:
        """Close the connection; the client shows the words, unless the channels' end is enough for it to leave."""
        for channel in self._channels:
            channel.tell(words)
        if self._link:
            self._link.disconnect(asyncssh.DISC_BY_APPLICATION, words)

    def _used(self) -> None:
        if self.guest:
            self._front.used(self.guest.session_id)

    def _keep(self, channel: Carrier) -> None:
        self._channels.add(channel)
        self._front.channels.add(channel)

    def _forget(self, channel: Carrier) -> None:
        self._channels.discard(channel)
        self._front.channels.discard(channel)
