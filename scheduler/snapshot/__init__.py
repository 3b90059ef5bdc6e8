"""The cluster and the queue as the database has them, read for a pass.

Imported by the state, the cycle and advice.
"""
