"""Lines of logs: their form, and secrets that are hidden in them.

Named by the settings' LOGGING.
"""
