"""What forms have in common whose services refuse by field.

Used by pages and webhooks.
"""
