"""Sign-in, its lockout, its mails and its pages.

Used by endpoints, notifications, resources, sessions and webhooks.
"""
