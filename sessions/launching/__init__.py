"""The launch of a session: its image, group, mounts and name, and its end.

Imported by all that starts or ends sessions.
"""
