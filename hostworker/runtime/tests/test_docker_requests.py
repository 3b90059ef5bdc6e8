"""Whose fault a refusal of the engine is: the host's, so that another one is tried, or the request's."""

from typing import Final

import pytest
import requests
from docker.errors import APIError

from hostworker.runtime.engine_requests import translated
from hostworker.runtime_protocol import StartError

CREATE: Final = "failed to create shim task: OCI runtime create failed: "
# As Docker Engine 20.10 says it where the runtime ends at once, and where it is missing; with the status 400 each time.
NO_LOG: Final = (
    f"{CREATE}unable to retrieve OCI runtime error (open /run/moby/e3/log.json: no such file or directory): "
)


@pytest.mark.parametrize(
    ("status", "text", "is_host_fault"),
    [
        (400, f"{NO_LOG}/usr/bin/runtime did not terminate successfully: exit status 1: unknown", True),
        (400, f"{NO_LOG}fork/exec /usr/bin/nvidia-container-runtime: no such file or directory: unknown", True),
        (400, f"{CREATE}error running hook #0: nvidia-container-cli: mount error: permission denied: unknown", True),
        (500, f"{CREATE}error running hook #0: nvidia-container-cli: driver not loaded: unknown", True),
        (400, f'{CREATE}exec: "/bin/sh": stat /bin/sh: no such file or directory: unknown', False),
        (400, "Minimum memory limit allowed is 6MB", False),
    ],
)
def test_a_broken_container_runtime_is_the_hosts_fault(status: int, text: str, is_host_fault: bool) -> None:
    response = requests.Response()
    response.status_code = status
    with pytest.raises(StartError) as refused, translated(StartError):
        raise APIError("refused", response, text)
    assert refused.value.is_host_fault is is_host_fault
