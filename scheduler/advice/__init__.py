"""What the launch wizard is told: whether, when and where a session would start.

Imported by the API and views of the scheduler, and by pages.
"""
