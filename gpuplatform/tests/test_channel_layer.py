"""The channel layer after an outage of Redis."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from channels.layers import get_channel_layer
from pytest_django import Settings

from operations import embedded
from operations.embedded_servers import redis_and_postgres as services


@pytest.fixture
def var_dir(settings: Settings) -> Iterator[Path]:
    """Return the folder of a Redis of our own, which the channel layer uses with the options of the settings."""
    folder = Path(tempfile.mkdtemp(prefix="gp-"))
    host: dict[str, Any] = settings.CHANNEL_LAYERS["default"]["CONFIG"]["hosts"][0]
    ours = host | {"address": f"unix://{embedded.redis_socket(folder)}"}
    settings.CHANNEL_LAYERS = {"default": settings.CHANNEL_LAYERS["default"] | {"CONFIG": {"hosts": [ours]}}}
    services.start_redis(folder)
    yield folder
    services.stop_redis(folder)
    shutil.rmtree(folder)


async def received(layer: Any) -> dict[str, Any]:
    """Join a group as a page does, receive a message, and leave; return the message."""
    channel = await layer.new_channel()
    await layer.group_add("page", channel)
    await layer.group_send("page", {"type": "news"})
    message: dict[str, Any] = await layer.receive(channel)
    await layer.group_discard("page", channel)
    closing = asyncio.create_task(layer.receive(channel))
    await asyncio.sleep(0)  # so that it waits when it is cancelled: this is how Channels leaves a channel
    closing.cancel()
    with suppress(asyncio.CancelledError):
        await closing
    return message


async def test_the_first_page_after_an_outage_is_served(var_dir: Path) -> None:
    layer = get_channel_layer()
    assert await received(layer) == {"type": "news"}
    await asyncio.to_thread(services.stop_redis, var_dir)
    await asyncio.to_thread(services.start_redis, var_dir)
    assert await received(layer) == {"type": "news"}
    await layer.flush()
