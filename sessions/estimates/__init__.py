"""When sessions that wait are likely to start: what they are told, how right it was, and how pages say it.

Used by gpuplatform, operations, pages and scheduler.
"""
