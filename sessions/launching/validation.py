"""Validation of the fields of a launch request, shared by form and API. Pure."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from folders.names import SFTP_LOGIN
from resources.accelerators.kinds import RUNTIME_PREFIXES
from resources.amounts.capacity import shared_memory_error
from resources.amounts.units import FGPU_STEP, MIB, fgpu_text, size_text, span_text

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,62}[A-Za-z0-9]")
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NOT_UNICODE: Final = re.compile("[\ud800-\udfff]")
MAX_NAME_LENGTH: Final = 64
MAX_COUNT: Final = 50
MAX_VARIABLES: Final = 200
MAX_ENVIRONMENT_BYTES: Final = 64 * 1024
MIN_MEMORY_BYTES: Final = 64 * MIB
MAX_COMMAND_BYTES: Final = 16 * 1024
MAX_DEPENDENCIES: Final = 20
MAX_MOUNTS: Final = 20
MAX_GPU_MODEL_LENGTH: Final = 96
MIN_GPU_MEMORY_BYTES: Final = 64 * MIB  # in place of a share
MAX_GPU_MEMORY_BYTES: Final = 2**50
MIN_TIME_LIMIT: Final = timedelta(minutes=1)
MAX_TIME_LIMIT: Final = timedelta(days=365)
MAX_START_DELAY: Final = timedelta(days=365)
RESERVED_PREFIX: Final = "GPUPLATFORM_"
# The engine runs hooks on the host with the container's variables: those of the dynamic linker and of vendors' runtimes
# would act there, as root (CVE-2025-23266).
ENGINE_PREFIXES: Final = ("LD_", *RUNTIME_PREFIXES)


def name_error(name: str) -> str | None:
    """Return what is wrong with a session name, or None."""
    if not 4 <= len(name) <= MAX_NAME_LENGTH:
        return f"A name has 4 to {MAX_NAME_LENGTH} characters."
    if not NAME.fullmatch(name):
        return "A name has only letters, digits and . _ - and begins and ends with a letter or digit."
    if name == SFTP_LOGIN:
        return f"{SFTP_LOGIN} is reserved: by this name SFTP reaches your data folders."
    return None


def amount_errors(*, cpu: int, memory: int, shared_memory: int, fgpu: int, count: int) -> dict[str, str]:
    """Return {field: message} for amounts out of range; memory in bytes, fGPU in milli-fGPU."""
    errors = {}
    if cpu < 1:
        errors["cpu"] = "A session needs at least 1 CPU core."
    if memory < MIN_MEMORY_BYTES:
        errors["memory"] = f"A session needs at least {size_text(MIN_MEMORY_BYTES)}."
    if error := shared_memory_error(shared_memory, memory):
        errors["shared_memory"] = error
    if fgpu < 0:
        errors["fgpu"] = "fGPU must be zero or more."
    elif fgpu % FGPU_STEP:
        lower = fgpu // FGPU_STEP * FGPU_STEP
        errors["fgpu"] = (
            f"fGPU is granted in steps of 0.01; the nearest values are "
            f"{fgpu_text(lower)} and {fgpu_text(lower + FGPU_STEP)}."
        )
    if not 1 <= count <= MAX_COUNT:
        errors["count"] = f"Start 1 to {MAX_COUNT} sessions at once."
    return errors


def time_limit_error(limit: timedelta | None) -> str | None:
    """Return what is wrong with a time limit, or None."""
    if limit is not None and not MIN_TIME_LIMIT <= limit <= MAX_TIME_LIMIT:
        return f"A time limit is {span_text(MIN_TIME_LIMIT)} to {span_text(MAX_TIME_LIMIT)}."
    return None


def gpu_model_error(model: str, fgpu: int) -> str | None:
    """Return what is wrong with the GPU model asked for beside so many milli-fGPU, or None."""
    if len(model) > MAX_GPU_MODEL_LENGTH:
        return f"The name of a GPU model has at most {MAX_GPU_MODEL_LENGTH} characters."
    return "A session without a GPU has no GPU model." if model and not fgpu else None


def min_gpu_memory_error(least: int, fgpu: int) -> str | None:
    """Return what is wrong with the least GPU memory asked for, in bytes, beside so many milli-fGPU, or None."""
    if not 0 <= least <= MAX_GPU_MEMORY_BYTES:
        return f"Ask for at most {size_text(MAX_GPU_MEMORY_BYTES)} of GPU memory."
    return "A session without a GPU has no GPU memory." if least and not fgpu else None


def gpu_memory_error(asked: int, least: int, image: str, image_least: int) -> str | None:
    """Return what is wrong with the bytes of GPU memory asked for in place of a share, or None.

    `least` is what the request says besides, `image_least` what the image needs.
    """
    if not asked:
        return None
    if not MIN_GPU_MEMORY_BYTES <= asked <= MAX_GPU_MEMORY_BYTES:
        return f"Ask for {size_text(MIN_GPU_MEMORY_BYTES)} to {size_text(MAX_GPU_MEMORY_BYTES)} of GPU memory."
    if asked < image_least:
        return f"{image} needs at least {size_text(image_least)} of GPU memory."
    return "It is less than the least GPU memory asked for." if asked < least else None


def start_error(not_before: datetime | None, now: datetime) -> str | None:
    """Return what is wrong with the earliest start, or None; one in the past is valid."""
    if not_before is not None and not_before > now + MAX_START_DELAY:
        return f"A start can be at most {MAX_START_DELAY.days} days ahead."
    return None


def command_error(command: str) -> str | None:
    """Return what is wrong with a batch session's command, or None."""
    if "\0" in command:
        return "The command contains a NUL character."
    if NOT_UNICODE.search(command):
        return "The command contains a lone surrogate."
    if len(command.encode()) > MAX_COMMAND_BYTES:
        return f"A command may take {size_text(MAX_COMMAND_BYTES)}; put more into a file."
    return None


def environment_error(environment: Mapping[str, str]) -> str | None:
    """Return what is wrong with the environment variables, or None."""
    if len(environment) > MAX_VARIABLES:
        return f"At most {MAX_VARIABLES} variables can be set."
    for name, value in environment.items():
        if not VARIABLE.fullmatch(name):
            return f"{name!r} is not a variable name: use letters, digits and _, not beginning with a digit."
        if name.startswith(RESERVED_PREFIX):
            return f"{name!r} is reserved: names beginning with {RESERVED_PREFIX} are set by the platform."
        if name.startswith(ENGINE_PREFIXES):
            return f"{name!r} would act on the host too: set it in the session, such as in ~/.bashrc."
        if "\0" in value:
            return f"The value of {name} contains a NUL character."
        if NOT_UNICODE.search(value):
            return f"The value of {name} contains a lone surrogate."
    size = sum(len(name) + len(value.encode()) + 2 for name, value in environment.items())
    if size > MAX_ENVIRONMENT_BYTES:
        return f"All variables together may take {size_text(MAX_ENVIRONMENT_BYTES)}; these take {size_text(size)}."
    return None
