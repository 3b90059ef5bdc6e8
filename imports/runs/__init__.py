"""How an import runs: the session that fetches, the program that is sent into it, what it says, and what becomes of it.

Used by its package alone.
"""
