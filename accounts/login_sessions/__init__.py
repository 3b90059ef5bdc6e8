"""The browsers in which a user is signed in, and how they are ended.

Used by pages.
"""
