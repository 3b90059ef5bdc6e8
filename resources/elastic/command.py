"""Provider `command`: programs of the administrators make, list and delete hosts, with JSON on stdin and stdout."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from rest_framework import serializers

from accounts.serializers import StrictSerializer
from resources.elastic.programs import output_of
from resources.elastic.providers import HostRequest, ProvidedHost, ProvidedState, ProviderError
from resources.elastic.refusals import refusal_of

MAX_WORDS: Final = 200  # characters of what it says of a failure
ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


def _command(help_text: str) -> serializers.ListField:
    return serializers.ListField(
        child=serializers.CharField(max_length=1000), min_length=1, max_length=50, help_text=help_text
    )


class CommandConfigurationSerializer(StrictSerializer, serializers.Serializer[None]):
    """Three programs in the folder COMPUTE_PROVIDER_COMMANDS, each with arguments of its own."""

    create = _command("Makes a host")  # type: ignore[assignment]  # which the metaclass takes out of the class
    list = _command("Lists the hosts")
    delete = _command("Deletes a host")
    timeout_seconds = serializers.IntegerField(min_value=1, max_value=600, default=120)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Raise ValidationError for programs that are not in the folder: who may set them may not run any program."""
        folder = settings.COMPUTE_PROVIDER_COMMANDS
        if not folder:
            raise serializers.ValidationError("COMPUTE_PROVIDER_COMMANDS names no folder of programs on this platform.")
        for name in ("create", "list", "delete"):
            program = attrs[name][0]
            if program in (".", "..") or "/" in program or "\0" in "".join(attrs[name]):
                raise serializers.ValidationError({name: "Begin with the name of a program, without its folder."})
        return attrs


class _ListedSerializer(serializers.Serializer[None]):
    """One host, as the program `list` writes it."""

    identifier = serializers.CharField(max_length=200)
    state = serializers.ChoiceField([state.value for state in ProvidedState])
    host_name = serializers.CharField(max_length=64, allow_null=True, default=None)
    reason = serializers.CharField(max_length=1000, allow_blank=True, default="")
    ends_at = serializers.DateTimeField(allow_null=True, default=None)


class CommandProvider:
    """Runs a program for each call: no shell, few variables, a time limit, and an end of what it may write."""

    def __init__(self, configuration: Mapping[str, Any], prefix: str) -> None:
        """Take a configuration; raise ValidationError for one that cannot work."""
        serializer = CommandConfigurationSerializer(data=configuration)
        if not serializer.is_valid():
            raise refusal_of(serializer.errors)
        self._known = serializer.validated_data
        self._prefix = prefix

    def create(self, request: HostRequest) -> str:
        """Run `create`, which writes {"identifier": ...}."""
        shape = request.shape
        found = self._run(
            "create",
            {
                "name": request.name,
                "group": request.group,
                "cpus": shape.cpus,
                "memory_bytes": shape.memory_bytes,
                "gpus": {"count": shape.gpu_count, "kind": shape.gpu_kind},
                "join_token": request.join_token,
                "join_address": request.join_address,
                "hold_until": _text(request.hold_until),
            },
        )
        identifier = found.get("identifier")
        if not isinstance(identifier, str) or not 1 <= len(identifier) <= 200 or "\0" in identifier:
            raise ProviderError("The program create wrote no identifier.")
        return identifier

    def list(self) -> Sequence[ProvidedHost]:
        """Run `list`, which writes {"hosts": [...]}."""
        serializer = _ListedSerializer(data=self._run("list", {"prefix": self._prefix}).get("hosts"), many=True)
        if not serializer.is_valid():
            raise ProviderError(f"What the program list wrote is not as expected: {serializer.errors}"[:MAX_WORDS])
        hosts = [ProvidedHost(**row | {"state": ProvidedState(row["state"])}) for row in serializer.validated_data]
        return [host for host in hosts if host.host_name and host.host_name.startswith(self._prefix)]

    def delete(self, identifier: str) -> None:
        """Run `delete`."""
        self._run("delete", {"identifier": identifier})

    def _run(self, name: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """Run a program and return the object that it writes, {} if it writes nothing."""
        program, *arguments = self._known[name]
        path = Path(settings.COMPUTE_PROVIDER_COMMANDS) / program
        code, output, errors = output_of(
            [str(path), *arguments], json.dumps(data), self._known["timeout_seconds"], ENVIRONMENT
        )
        if code:
            said = errors.strip().splitlines()
            raise ProviderError(f"The program {name} failed: {said[-1] if said else f'status {code}'}"[:MAX_WORDS])
        try:
            found = json.loads(output or "{}")
        except (ValueError, RecursionError) as error:
            raise ProviderError(f"The program {name} wrote no JSON.") from error
        if not isinstance(found, dict):
            raise ProviderError(f"The program {name} wrote no JSON object.")
        return found


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
