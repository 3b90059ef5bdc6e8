"""Lines of logs: their form, and secrets that are hidden in them.

Used by gpuplatform.
"""
