"""The kinds of providers: one row for each, by which a pool's configuration is checked and its provider made."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from resources.elastic.command import CommandProvider
from resources.elastic.providers import Provider
from resources.elastic.slurm import SlurmProvider

# Each takes the configuration of a pool and the prefix of the names of this installation's hosts, and raises
# django.core.exceptions.ValidationError for a configuration that it cannot work with. It does nothing slow.
MakeProvider = Callable[[Mapping[str, Any], str], Provider]
KINDS: Final[dict[str, MakeProvider]] = {"command": CommandProvider, "slurm": SlurmProvider}
