"""Tokens, which open a deployment to programs, and those of the page on which it is tried.

Used by endpoints and pages.
"""
