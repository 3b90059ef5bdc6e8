"""The runtime that drives a Docker Engine.

Used by operations.
"""

from hostworker.runtime.docker.runtime import DockerRuntime

__all__ = ["DockerRuntime"]
