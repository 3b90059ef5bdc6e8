"""Webhooks: signed HTTP requests to addresses of users for events of their sessions and for their notifications."""
