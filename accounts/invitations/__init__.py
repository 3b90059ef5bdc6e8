"""Invitations by which people get an account: services, API and pages.

Used by gpuplatform and sessions.
"""
