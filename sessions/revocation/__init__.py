"""What ends with an account, a log-in or a host's access.

Used by endpoints and hostworker.
"""
