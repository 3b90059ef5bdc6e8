"""What the launch wizard asks for a job array: its form, and what that begins with.

Used by its package alone.
"""
