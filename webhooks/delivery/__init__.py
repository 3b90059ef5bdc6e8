"""Deliveries of webhooks: payloads, signatures' secrets, and the sender.

Imported by the tasks and services of webhooks.
"""
