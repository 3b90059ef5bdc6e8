"""The types of an ASGI application and of what its server calls it with."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Any], Awaitable[None]]  # of messages
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
