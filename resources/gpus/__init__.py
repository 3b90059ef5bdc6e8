"""GPUs of a host: discovery, memory, topology, shares and simulated ones.

Used by gpuplatform, hostworker, operations, pages, scheduler and sessions.
"""
