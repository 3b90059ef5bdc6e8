"""What ends with an account, a log-in or a host's access.

Used by hostworker.
"""
