"""How people reach a session: apps, SSH, addresses, and what counts as activity.

Imported by the host worker, endpoints, the SSH server and pages.
"""
