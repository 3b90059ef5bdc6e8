"""The supervisor that runs an installation's processes and restarts them.

Imported by the command `up` and by the control of services.
"""
