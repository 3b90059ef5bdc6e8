"""The list of sessions: GPU blocks and resource bars, tabs, filters, columns, CSV, and its live updates.

Used by gpuplatform.
"""
