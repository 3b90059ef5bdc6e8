"""Amounts of cores, memory and GPUs: units, fields, and how they are shown.

Used by arrays, deployments, endpoints, folders, gpuplatform, hostworker, imports, notifications, operations, pages,
scheduler, sessions and specs.
"""
