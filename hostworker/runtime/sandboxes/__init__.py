"""Network sandboxes that are made ahead of the containers that join them.

Used by its package alone.
"""
