"""How much a folder may hold, and how much it holds.

Used by hostworker, pages and sshserver.
"""
