"""The worker of a host: it starts, reconciles and stops what the database says.

Imported by the tasks and commands of the host worker.
"""
