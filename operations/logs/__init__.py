"""Lines of logs: their form, secrets that are hidden in them, and how much of them is kept.

Used by gpuplatform.
"""
