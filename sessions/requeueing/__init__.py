"""Sessions that go back to the queue: preemption, and faults of their hosts.

Used by hostworker and scheduler.
"""
