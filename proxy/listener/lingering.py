"""The end of a client connection, by which no response is lost."""

import asyncio

from proxy.limits import ProxyLimits


def close_in_stages(transport: asyncio.Transport, limits: ProxyLimits) -> float:
    """Close the write side, and return the seconds after which the rest may be closed.

    A server that closes while unread input arrives makes the client's system reset the connection, and drop the
    response that the client has not read yet (RFC 9112, 9.6; nginx calls it lingering_close).
    """
    if not transport.can_write_eof():
        transport.close()
        return limits.linger_seconds
    is_written = transport.get_write_buffer_size() == 0
    transport.write_eof()
    return limits.linger_seconds if is_written else limits.idle_seconds
