"""How people reach a session: apps, SSH, addresses, and what counts as activity.

Used by deployments, endpoints, gpuplatform, hostworker, operations, pages and sshserver.
"""
