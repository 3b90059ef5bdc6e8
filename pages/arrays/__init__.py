"""The pages of job arrays: their list, and the page of one with its tasks and what can be done with them.

Used by its package alone.
"""
