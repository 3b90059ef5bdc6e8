"""Values of the cache as JSON: who may write to Redis must not run code in those who read it, as pickle lets them."""

import json
from typing import Any


class JsonSerializer:
    """A serializer of Django's Redis cache; integers stay as they are, so that Redis can count them."""

    def dumps(self, value: Any) -> bytes | int:
        """Return what is stored."""
        return value if type(value) is int else json.dumps(value).encode()

    def loads(self, data: bytes) -> Any:
        """Return the value of what is stored."""
        return json.loads(data)
