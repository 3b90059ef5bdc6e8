"""How a notification reaches its user: texts, mail, and the end of a session.

Used by webhooks.
"""
