"""How people reach a session: apps, SSH, addresses, and what counts as activity.

Used by endpoints, gpuplatform, hostworker, operations, pages and sshserver.
"""
