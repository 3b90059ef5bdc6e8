"""What ends with an account, a log-in or a host's access.

Imported by the apps' signals and the tasks.
"""
