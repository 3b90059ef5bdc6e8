"""The life of one session's container: run, park, resize, mounts and environment.

Imported by the agent.
"""
