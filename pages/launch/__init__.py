"""The launch page."""
