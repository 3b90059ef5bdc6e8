"""How a notification reaches its user: texts, mail, and the end of a session.

Imported by the tasks and services of notifications.
"""
