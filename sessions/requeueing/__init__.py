"""Sessions that go back to the queue: preemption, and faults of their hosts.

Imported by the scheduler and the host worker.
"""
