"""The page of webhooks.

Imported by the addresses.
"""
