"""Amounts of cores, memory and GPUs: units, fields, and how they are shown.

Used by folders, gpuplatform, hostworker, operations, pages, scheduler and sessions.
"""
