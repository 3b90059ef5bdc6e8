"""Environment variables that are set inside a container alone: the engine's hooks run on the host with the others.

A hook that is given the container's variables loads what LD_LIBRARY_PATH or XDG_CONFIG_HOME name, as root
(CVE-2025-23266). So a user's variables, and those of an image that would act on a hook, are in a file, which every
shell of the platform's reads (`engine.containers.READ_VARIABLES`).
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from resources.accelerators.kinds import RUNTIME_PREFIXES

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Of the dynamic linker and the C library, of Go's runtime (NVIDIA's hooks are in Go), of where programs look for their
# configuration, and of vendors' runtimes, which can be asked for devices that no lease holds.
HOOK_PREFIXES: Final = ("LD_", "GLIBC_", "GCONV_PATH", "LOCPATH", "MALLOC_", "GO", "XDG_", *RUNTIME_PREFIXES)
HARMLESS_PREFIXES: Final = ("GOLANG_", "GOOGLE_", "GOPATH", "GOROOT", "NVIDIA_REQUIRE_")  # NVIDIA_REQUIRE_ only refuses


def acts_on_hooks(name: str) -> bool:
    """Return whether a variable of this name is withheld from the engine's hooks."""
    return name.startswith(HOOK_PREFIXES) and not name.startswith(HARMLESS_PREFIXES)


def withheld(image_environment: Sequence[str]) -> dict[str, str]:
    """Return those of an image's variables, each as NAME=value, that are withheld from the engine's hooks."""
    pairs = (entry.partition("=") for entry in image_environment)
    return {name: value for name, _, value in pairs if NAME.fullmatch(name) and acts_on_hooks(name)}


def script(variables: Mapping[str, str]) -> str:
    """Return lines of the shell that set the variables. Raises ValueError for what is no name of one."""
    for name in variables:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a variable's name")
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
