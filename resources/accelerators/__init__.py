"""Accelerators of any vendor: their kinds, how a host finds them, and what a container needs to use one. No Django.

NVIDIA's GPUs are found by NVML (`resources/gpus`); all others by a finder here, by a plug-in, or by a CDI file.
Used by hostaccess, hostworker, notifications, operations, pages and sessions.
"""
