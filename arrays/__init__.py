"""Job arrays and sweeps: one request with many sets of parameters, whose tasks become sessions as there is room.

Used by gpuplatform, operations, notifications, specs and pages.
"""
