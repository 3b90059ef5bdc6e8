"""The runtime that drives a Docker Engine.

Imported by the factory of runtimes, by the dotted name in COMPUTE_RUNTIME.
"""

from hostworker.runtime.docker.runtime import DockerRuntime

__all__ = ["DockerRuntime"]
