"""What a member of a cluster finds inside it: environment variables, and files at a documented place. No Django.

Used by its package alone.
"""
