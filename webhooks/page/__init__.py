"""The page of webhooks.

Used by its package alone.
"""
