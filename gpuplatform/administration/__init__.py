"""The Django admin's site: dashboard, navigation, and the audit of what is changed there.

Imported by the settings and the addresses; models' admins register with it.
"""
