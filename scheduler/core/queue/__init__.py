"""The order of requests: fair share and limits.

Imported by the cluster and what waits.
"""
