"""Deliveries of webhooks: payloads, signatures' secrets, and the sender.

Used by operations.
"""
