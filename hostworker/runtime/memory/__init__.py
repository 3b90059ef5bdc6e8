"""A runtime without containers, for tests and simulated hosts.

Imported by the factory of runtimes, by the dotted name in COMPUTE_RUNTIME.
"""

from hostworker.runtime.memory.runtime import MemoryRuntime

__all__ = ["MemoryRuntime"]
