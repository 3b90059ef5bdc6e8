"""Second factors: time-based codes, recovery codes, and when they are demanded.

Imported by signing in, the account's pages and the administration.
"""
