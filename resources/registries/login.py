"""A login at a container registry. Pure; passwords are kept out of representations, so that no log shows one."""

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryLogin:
    """User name and password at the registry `address`, which is a host with its port."""

    address: str
    username: str
    password: str = field(repr=False)

    def auth_config(self) -> dict[str, str]:
        """Return what the Docker SDK's `pull` and `push` take as `auth_config`; sent with that request alone."""
        if self == ANONYMOUS:
            return {}
        return {"username": self.username, "password": self.password, "serveraddress": self.address}


ANONYMOUS: Final = RegistryLogin(address="", username="", password="")  # no login, not even one of `docker login`
