"""GPUs of a host: discovery, memory, topology, shares and simulated ones.

Imported by the host worker, the scheduler and the pages.
"""
