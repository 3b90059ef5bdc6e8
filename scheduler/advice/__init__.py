"""What the launch wizard is told: whether, when and where a session would start.

Used by pages.
"""
