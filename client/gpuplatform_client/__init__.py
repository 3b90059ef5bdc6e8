"""Python client of GPU Platform: `Client`, `AsyncClient`, and the types that both take and return."""

from gpuplatform_client.async_client import AsyncClient
from gpuplatform_client.client import Client
from gpuplatform_client.errors import (
    AccessDeniedError,
    ApiError,
    ClientError,
    MissingObjectError,
    OverloadedError,
    SignInRequiredError,
    UnreachableServerError,
)
from gpuplatform_client.models.arrays import ArrayInfo, ArraySpec, ArrayTaskInfo
from gpuplatform_client.models.deployments import DeploymentInfo, DeploymentSpec, HealthSpec, RevisionSpec
from gpuplatform_client.models.platform import (
    ClusterSpec,
    ComputeSession,
    LaunchSpec,
    MemberSpec,
    MountSpec,
    ResizeSpec,
)
from gpuplatform_client.remote.calls import RemoteError
from gpuplatform_client.remote.sessions import AsyncSession, RemotePythonError
from gpuplatform_client.remote.sessions import BlockingSession as Session
from gpuplatform_client.remote.spread import async_map, map

__all__ = [
    "AccessDeniedError",
    "ApiError",
    "ArrayInfo",
    "ArraySpec",
    "ArrayTaskInfo",
    "AsyncClient",
    "AsyncSession",
    "Client",
    "ClientError",
    "ClusterSpec",
    "ComputeSession",
    "DeploymentInfo",
    "DeploymentSpec",
    "HealthSpec",
    "LaunchSpec",
    "MemberSpec",
    "MissingObjectError",
    "MountSpec",
    "OverloadedError",
    "RemoteError",
    "RemotePythonError",
    "ResizeSpec",
    "RevisionSpec",
    "Session",
    "SignInRequiredError",
    "UnreachableServerError",
    "async_map",
    "map",
]
