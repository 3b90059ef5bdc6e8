"""The browsers in which a user is signed in, and how they are ended.

Imported by signing in, the API and what follows an account's end.
"""
