"""Refusals that people see. Forms and serializers put each message at the field it is about."""

from collections.abc import Mapping

GENERAL = "__all__"  # the key of what concerns no single field


class RejectedError(Exception):
    """The request cannot be granted, ever or under today's limits: {field: message fit for the user}."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = dict(errors)
