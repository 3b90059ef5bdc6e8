"""The web terminal: its sockets, messages and freshness.

Imported by the sockets' addresses and the SSH server.
"""
