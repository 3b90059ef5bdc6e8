"""What a new installation begins with: a resource group, presets and three users. Never touches what an admin made."""

import json
import os
import secrets
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import transaction
from django.forms import model_to_dict

from accounts.models import ResourcePolicy, User
from resources.amounts.units import GIB, MIB
from resources.models import Preset, ResourceGroup

ADMIN_EMAIL: Final = "admin@example.org"
USER_EMAIL: Final = "user@example.org"
DEVELOPER_EMAIL: Final = "developer@example.org"  # may gain root in sessions, and turn them into images
DEVELOPER_POLICY: Final = "developers"
FGPU_PER_GPU: Final = 2
CPU_OVERCOMMIT: Final = Decimal(4)  # or a laptop is full with a session or two
PRESETS: Final = {
    "no-gpu": {"cpu": 1, "memory": 2 * GIB, "shared_memory": 64 * MIB, "fgpu": 0},  # all that hosts without GPUs serve
    "small": {"cpu": 1, "memory": GIB, "shared_memory": 64 * MIB, "fgpu": 500},
    "medium": {"cpu": 1, "memory": 2 * GIB, "shared_memory": 256 * MIB, "fgpu": 1000},
    "large": {"cpu": 2, "memory": 4 * GIB, "shared_memory": GIB, "fgpu": 2000},
}


@dataclass(frozen=True, slots=True)
class Login:
    """An address and password that sign in."""

    email: str
    password: str


@transaction.atomic
def create(logins_file: Path) -> None:
    """Create each kind of demo data of which there is nothing yet; what exists or was deleted by an admin stays so.

    The random passwords are written to `logins_file`, readable by its owner alone.
    """
    ResourcePolicy.default()
    if not ResourceGroup.objects.exists():
        ResourceGroup.objects.create(
            name=settings.COMPUTE_HOST_GROUP,
            description="Every host of this installation",
            fgpu_per_gpu=FGPU_PER_GPU,
            cpu_overcommit=CPU_OVERCOMMIT,
            open_to_all=True,
        )
    if not Preset.objects.exists():
        Preset.objects.bulk_create(Preset(name=name, **amounts) for name, amounts in PRESETS.items())
    if not User.objects.exists():
        passwords = {email: secrets.token_urlsafe(9) for email in (ADMIN_EMAIL, USER_EMAIL, DEVELOPER_EMAIL)}
        User.objects.create_superuser(ADMIN_EMAIL, passwords[ADMIN_EMAIL])
        User.objects.create_user(USER_EMAIL, passwords[USER_EMAIL])
        User.objects.create_user(DEVELOPER_EMAIL, passwords[DEVELOPER_EMAIL], policy=_developer_policy())
        logins_file.parent.mkdir(parents=True, exist_ok=True)
        logins_file.unlink(missing_ok=True)
        descriptor = os.open(logins_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(passwords, file, indent=2)


def _developer_policy() -> ResourcePolicy:
    """Return the policy with the default limits under which sudo and conversion are allowed, created on first use."""
    limits = model_to_dict(ResourcePolicy.default(), exclude=["id", "name"])
    policy, _ = ResourcePolicy.objects.get_or_create(
        name=DEVELOPER_POLICY, defaults={**limits, "allow_sudo": True, "allow_conversion": True}
    )
    return policy


def logins(logins_file: Path) -> list[Login]:
    """Return the demo logins that still work: not those with a changed password or a deleted user."""
    try:
        passwords: dict[str, str] = json.loads(logins_file.read_text())
    except FileNotFoundError:
        return []
    users = User.objects.filter(email__in=passwords, is_active=True)
    return [Login(user.email, passwords[user.email]) for user in users if user.check_password(passwords[user.email])]
