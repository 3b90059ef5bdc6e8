"""How people reach a session: apps, SSH, addresses, and what counts as activity.

Used by deployments, endpoints, gpuplatform, hostworker, imports, operations, pages and sshserver.
"""
