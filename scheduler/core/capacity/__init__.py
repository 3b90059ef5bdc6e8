"""What hosts have free, and which of them a request takes.

Imported by the cluster and the queue of the core.
"""
