"""A cluster on one machine, for faults: hosts with an engine each, several of each process, and what breaks them.

All of it lives in namespaces of its own (`isolation`), so that it may cut cables, fill disks and set clocks without
anybody else noticing, and so that nothing is left when it ends, however it ends.
"""
