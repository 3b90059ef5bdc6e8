"""Finds what runs the platform on this machine."""

from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext as _

from operations import embedded
from operations.services.base import ServiceControlError, ServiceManager
from operations.services.compose import ComposeManager
from operations.services.supervisor import SupervisorManager
from operations.services.systemd import SystemdManager


def local_manager() -> ServiceManager:
    """Return the manager of this machine's services. Raises ServiceControlError where there is none."""
    supervisor = SupervisorManager(embedded.supervisor_socket(Path(settings.COMPUTE_VAR_DIR)))
    for manager in (supervisor, SystemdManager(), ComposeManager(settings.COMPUTE_DOCKER_URL)):
        if manager.is_running():
            return manager
    raise ServiceControlError(_("The platform is run here neither by `make up` nor by systemd nor by Docker Compose."))
