"""The error for rejected requests, with a message per field for forms and serializers."""

from collections.abc import Mapping

GENERAL = "__all__"  # the key of messages that concern no single field


class RejectedError(Exception):
    """The request cannot be granted, ever or under the current limits; `errors` is {field: message for the user}."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = dict(errors)
