"""The Django admin's site: dashboard, navigation, and the audit of what is changed there.

Used by its package alone.
"""
