"""The SSH server: log-in, limits and supervision of connections; their channels are in modules of their own."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncssh
from channels.db import database_sync_to_async
from django.db import Error

from accounts.credentials.public_keys import InvalidPublicKeyError, public_key_from
from proxy.pending import source_of
from sshserver.access import (
    AccessRefusal,
    DataPrincipal,
    Principal,
    SshPrincipal,
    authenticate,
    record_key_use,
    still_authorized,
)
from sshserver.data_channel import DataChannel
from sshserver.exec_channel import ExecChannel
from sshserver.forward_channel import LOOPBACK_NAMES, ForwardChannel
from sshserver.login_failures import LoginFailures
from sshserver.pending_logins import PendingLogins
from sshserver.session_channel import SessionChannel

logger = logging.getLogger(__name__)

LOGIN_TIMEOUT_SECONDS: Final = 20
RECHECK_INTERVAL_SECONDS: Final = 0.7  # of authorization; with the query, access ends within a second
KEEPALIVE_SECONDS: Final = 30  # three unanswered end a connection
MAX_KEYS_OFFERED: Final = 12  # of one connection; an agent may hold many
MAX_CONNECTIONS_PER_USER: Final = 40  # connections
MAX_SESSION_CHANNELS: Final = 10  # of one connection
MAX_CHANNELS: Final = 50  # of one connection, forwarded connections included
FILE_THREADS: Final = 32  # operations on files of data folders at once
SHUTDOWN_TIMEOUT_SECONDS: Final = 3.0  # for the processes of all connections to end when the server stops


Channel = ExecChannel | DataChannel


class SshServer:
    """All connections of this process. `used` is called with the session's id on each input of its user."""

    def __init__(self, used: Callable[[str], None]) -> None:
        self.used = used
        self.login_failures = LoginFailures()
        self.pending_logins = PendingLogins()
        self.connections: set[SshConnection] = set()
        self.channels: set[Channel] = set()
        self.file_threads = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="sftp")

    @asynccontextmanager
    async def listening(self, host: str, port: int, host_key: asyncssh.SSHKey) -> AsyncIterator[int]:
        """Accept connections during the block, which gets the port; then end them. Raises OSError for a bad address."""
        server = await asyncssh.create_server(
            lambda: SshConnection(self),
            host,
            port,
            server_host_keys=[host_key],
            server_version="GPUPlatform",
            encoding=None,
            line_editor=False,
            agent_forwarding=False,
            gss_host=None,
            compression_algs=None,
            login_timeout=LOGIN_TIMEOUT_SECONDS,
            keepalive_interval=KEEPALIVE_SECONDS,
        )
        recheck = asyncio.create_task(self._recheck())
        logger.info("SSH at %s port %d, host key %s", host, server.get_port(), host_key.get_fingerprint())
        try:
            yield server.get_port()
        finally:
            server.close()
            recheck.cancel()
            await self._end_all()
            self.file_threads.shutdown(wait=False, cancel_futures=True)

    async def _end_all(self) -> None:
        left = [asyncio.create_task(channel.finished()) for channel in self.channels]
        for connection in list(self.connections):
            connection.end("The platform is being restarted.")
        if left:
            await asyncio.wait(left, timeout=SHUTDOWN_TIMEOUT_SECONDS)

    async def _recheck(self) -> None:
        """End the connections whose session has ended, account is disabled or key is deleted."""
        while True:
            await asyncio.sleep(RECHECK_INTERVAL_SECONDS)
            principals = {connection.principal for connection in self.connections if connection.principal}
            if not principals:
                continue
            try:
                authorized = await database_sync_to_async(still_authorized)(principals)
            except Error as error:
                logger.warning("SSH: open connections could not be authorized again, will retry: %s", error)
                continue
            for connection in list(self.connections):
                if connection.principal in principals and connection.principal not in authorized:
                    connection.end("The session, the account or the key that opened this is no more.")


class SshConnection(asyncssh.SSHServer):
    """The server side of one client's connection."""

    def __init__(self, server: SshServer) -> None:
        self._server = server
        self._link: asyncssh.SSHServerConnection | None = None
        self._address = ""
        self._channels: set[Channel] = set()
        self._connecting = 0  # forwarded connections that are being opened
        self._offered = 0
        self._found: Principal | AccessRefusal | None = None  # by the key offered last, which may be unproven
        self._is_proven = False
        self.principal: Principal | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Accept the client, or abort if its address is blocked; the oldest pending log-in may be dropped for it."""
        self._link, self._address = conn, str(conn.get_extra_info("peername", ("",))[0])
        self._server.connections.add(self)
        if self._server.login_failures.is_blocked(self._address, time.monotonic()):
            logger.info("SSH: dropped a connection from %s: too many failed log-ins", self._address)
            conn.abort()
        elif self._server.pending_logins.add(self, source_of(self._address), conn.abort):
            logger.info("SSH: dropped the oldest pending log-in for a connection from %s", self._address)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection; one that offered keys and never logged in counts as a failure."""
        self._link = None
        self._server.connections.discard(self)
        self._server.pending_logins.remove(self)
        if self._offered and not self._is_proven:
            failures = self._server.login_failures.record(self._address, time.monotonic())
            logger.warning("SSH: no key of a client at %s was accepted (%d times lately)", self._address, failures)

    def begin_auth(self, username: str) -> bool:
        """Require authentication of every client."""
        return True

    def public_key_auth_supported(self) -> bool:
        """Offer authentication by public key only."""
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Return whether the key is known; the library checks that the client has its private half.

        Nothing comes between the last such answer and `auth_completed`, so the key found last is the proven one.
        """
        self._offered, self._found = self._offered + 1, None
        if self._offered > MAX_KEYS_OFFERED:
            raise asyncssh.DisconnectError(
                asyncssh.DISC_NO_MORE_AUTH_METHODS_AVAILABLE, "Too many keys offered; name one with ssh -i."
            )
        try:
            offered = public_key_from(key.export_public_key().decode())
            self._found = await database_sync_to_async(authenticate)(username, offered)
        except InvalidPublicKeyError:
            return False
        except Error as error:
            logger.warning("SSH: nobody can log in, the database does not answer: %s", error)
            raise asyncssh.DisconnectError(asyncssh.DISC_SERVICE_NOT_AVAILABLE, "Try again in a moment.") from error
        return self._found is not None

    async def auth_completed(self) -> None:
        """Admit the user to the session, or end the connection with the reason."""
        self._is_proven = True
        self._server.login_failures.clear(self._address)
        self._server.pending_logins.remove(self)
        if self._found is None or isinstance(self._found, AccessRefusal):
            self.end(self._found.message if self._found else "There was no key.")
            return
        others = [other.principal for other in self._server.connections if other.principal]
        if sum(other.user_id == self._found.user_id for other in others) >= MAX_CONNECTIONS_PER_USER:
            self.end(f"You have {MAX_CONNECTIONS_PER_USER} SSH connections already.")
            return
        self.principal = self._found  # before the first await: the client requests a channel at once
        where = f"session {self._found.session_id}" if isinstance(self._found, SshPrincipal) else "data folders"
        logger.info("%s: %s came by SSH from %s", where, self.principal, self._address)
        try:
            await database_sync_to_async(record_key_use)(self.principal)
        except Error as error:
            logger.warning("SSH: the use of key %s could not be recorded: %s", self.principal.key_id, error)

    def session_requested(self) -> SessionChannel | DataChannel:
        """Return a new channel to the session or the data folders. Raises ChannelOpenError above the limit."""
        count = sum(isinstance(each, SessionChannel | DataChannel) for each in self._channels)
        if self.principal is None or count >= MAX_SESSION_CHANNELS:
            reason = f"No more than {MAX_SESSION_CHANNELS} at once."
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, reason)
        if isinstance(self.principal, DataPrincipal):
            data = DataChannel(self.principal, self._server.file_threads, self._remove)
            self._add(data)
            return data
        channel = SessionChannel(self.principal, self._used, self._remove)
        self._add(channel)
        return channel

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:
        """Return a coroutine that connects to a port of the session. Raises ChannelOpenError for any other host."""
        if (
            not isinstance(self.principal, SshPrincipal)
            or dest_host not in LOOPBACK_NAMES
            or len(self._channels) + self._connecting >= MAX_CHANNELS
        ):
            reason = f"Only localhost of the session can be forwarded to, {MAX_CHANNELS} times at once."
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, reason)
        self._connecting += 1
        return self._forward(self.principal, dest_port)

    async def _forward(self, principal: SshPrincipal, port: int) -> ForwardChannel:
        try:
            forward = await ForwardChannel.connect(port, principal, self._used, self._remove)
        finally:
            self._connecting -= 1
        if self._link is None:  # the client has disconnected meanwhile
            await forward.hang_up()
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "The connection is closed.")
        self._add(forward)
        return forward

    def end(self, message: str) -> None:
        """Close the connection with a message, which its channels and the client itself show."""
        for channel in self._channels:
            channel.show(message)
        if self._link:
            self._link.disconnect(asyncssh.DISC_BY_APPLICATION, message)

    def _used(self) -> None:
        if isinstance(self.principal, SshPrincipal):
            self._server.used(self.principal.session_id)

    def _add(self, channel: Channel) -> None:
        self._channels.add(channel)
        self._server.channels.add(channel)

    def _remove(self, channel: Channel) -> None:
        self._channels.discard(channel)
        self._server.channels.discard(channel)
