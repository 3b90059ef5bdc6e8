"""A runtime without containers, for tests and simulated hosts.

Used by its package alone.
"""

from hostworker.runtime.memory.runtime import MemoryRuntime

__all__ = ["MemoryRuntime"]
