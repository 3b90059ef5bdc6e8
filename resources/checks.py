"""Django system checks of this host's settings."""

from ipaddress import IPv4Network, ip_address
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error

from resources.addresses import is_address, is_gateway_url
from resources.amounts.units import bytes_from
from resources.gpus.discovery import simulated_devices

HOST_TAG: Final = "host"  # of these checks, which a host worker has made
MAX_RESERVED_PERCENT: Final = 50
CLUSTER_PREFIX_LENGTH: Final = 24  # of the network of one cluster
_EVERYWHERE: Final = ("http://0.0.0.0:", "http://[::]:")  # valid to listen on, but not to connect to


def check_simulated_gpus(**kwargs: Any) -> list[CheckMessage]:
    """Return an error if COMPUTE_SIMULATED_GPUS is malformed."""
    try:
        simulated_devices(settings.COMPUTE_SIMULATED_GPUS, settings.COMPUTE_HOST_NAME)
    except ValueError as error:
        hint = "Write a count and a memory size, such as 1x8GiB or 2x8GiB,1x24GiB; leave it empty for none."
        return [Error(f"COMPUTE_SIMULATED_GPUS: {error}.", hint=hint, id="resources.E001")]
    return []


def check_host_amounts(**kwargs: Any) -> list[CheckMessage]:
    """Return an error for COMPUTE_HOST_CPU and COMPUTE_HOST_MEMORY if malformed."""
    errors: list[CheckMessage] = []
    if settings.COMPUTE_HOST_CPU < 0:
        message = f"COMPUTE_HOST_CPU: {settings.COMPUTE_HOST_CPU} is below zero."
        errors.append(Error(message, hint="Write the cores to lend; 0 lends all.", id="resources.E002"))
    try:
        bytes_from(settings.COMPUTE_HOST_MEMORY or "0")
    except ValueError as error:
        message = f"COMPUTE_HOST_MEMORY: {error}"
        errors.append(Error(message, hint="Write for example 48g; leave it empty to lend all.", id="resources.E003"))
    return errors


def check_inode_reserve(**kwargs: Any) -> list[CheckMessage]:
    """Return an error if COMPUTE_INODE_RESERVE is no percentage that leaves sessions anything."""
    if 0 <= settings.COMPUTE_INODE_RESERVE <= MAX_RESERVED_PERCENT:
        return []
    message = f"COMPUTE_INODE_RESERVE: {settings.COMPUTE_INODE_RESERVE} is not from 0 to {MAX_RESERVED_PERCENT}."
    return [Error(message, hint="Write a percentage of all inodes, such as 5; 0 keeps none.", id="resources.E009")]


def check_gpu_amounts(**kwargs: Any) -> list[CheckMessage]:
    """Return an error if COMPUTE_GPU_CONTEXT_MEMORY is malformed."""
    try:
        bytes_from(settings.COMPUTE_GPU_CONTEXT_MEMORY)
    except ValueError as error:
        message = f"COMPUTE_GPU_CONTEXT_MEMORY: {error}."
        return [Error(message, hint="Write for example 512m; 0 counts nothing.", id="resources.E005")]
    return []


def check_http_address(**kwargs: Any) -> list[CheckMessage]:
    """Return an error if COMPUTE_HTTP_ADDRESS is not host:port."""
    if is_address(settings.COMPUTE_HTTP_ADDRESS):
        return []
    message = f"COMPUTE_HTTP_ADDRESS: {settings.COMPUTE_HTTP_ADDRESS!r} is not an address with a port."
    return [Error(message, hint="Write for example 127.0.0.1:8000 or [::1]:8000.", id="resources.E004")]


def check_gateway(**kwargs: Any) -> list[CheckMessage]:
    """Return an error if COMPUTE_GATEWAY_ADDRESS or COMPUTE_GATEWAY_URL is malformed or cannot be connected to."""
    errors: list[CheckMessage] = []
    if settings.COMPUTE_GATEWAY_ADDRESS and not is_address(settings.COMPUTE_GATEWAY_ADDRESS):
        message = f"COMPUTE_GATEWAY_ADDRESS: {settings.COMPUTE_GATEWAY_ADDRESS!r} is not an address with a port."
        errors.append(Error(message, hint="Write for example 10.0.0.5:8010.", id="resources.E006"))
    elif settings.COMPUTE_GATEWAY_URL and not is_gateway_url(settings.COMPUTE_GATEWAY_URL):
        message = f"COMPUTE_GATEWAY_URL: {settings.COMPUTE_GATEWAY_URL!r} is not http:// and an address with a port."
        hint = "Write for example http://10.0.0.5:8010. A gateway speaks no TLS: a tunnel encrypts, see docs/hosts.md."
        errors.append(Error(message, hint=hint, id="resources.E007"))
    elif settings.COMPUTE_GATEWAY_URL.startswith(_EVERYWHERE):
        message = f"COMPUTE_GATEWAY_URL: {settings.COMPUTE_GATEWAY_URL!r} is not an address to connect to."
        hint = "Write the address of this host for the web process, such as http://10.0.0.5:8010."
        errors.append(Error(message, hint=hint, id="resources.E008"))
    return errors


def check_clusters(**kwargs: Any) -> list[CheckMessage]:
    """Return errors for COMPUTE_CLUSTER_RANGE and COMPUTE_CLUSTER_ADDRESS if malformed."""
    errors: list[CheckMessage] = []
    try:
        if IPv4Network(settings.COMPUTE_CLUSTER_RANGE).prefixlen > CLUSTER_PREFIX_LENGTH:
            raise ValueError(f"{settings.COMPUTE_CLUSTER_RANGE} has less than 256 addresses")
    except ValueError as error:
        hint = "Write a network of IPv4 with a /24 for each cluster, such as 100.64.0.0/12."
        errors.append(Error(f"COMPUTE_CLUSTER_RANGE: {error}.", hint=hint, id="resources.E010"))
    try:
        ip_address(settings.COMPUTE_CLUSTER_ADDRESS or "127.0.0.1")
    except ValueError as error:
        hint = "Write an address of this host, such as 10.0.0.7; leave it empty to have it found."
        errors.append(Error(f"COMPUTE_CLUSTER_ADDRESS: {error}.", hint=hint, id="resources.E011"))
    return errors


CHECKS: Final = (
    check_simulated_gpus,
    check_host_amounts,
    check_inode_reserve,
    check_gpu_amounts,
    check_http_address,
    check_gateway,
    check_clusters,
)
