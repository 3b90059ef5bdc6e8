"""Invitations by which people get an account: services, API and pages.

Imported by the administration and the addresses of accounts.
"""
