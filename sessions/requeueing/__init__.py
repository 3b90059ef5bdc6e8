"""Sessions that go back to the queue: preemption, and faults of their hosts.

Used by deployments, hostworker, pages and scheduler.
"""
