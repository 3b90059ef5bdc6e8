"""Storage roots as root on the host: their mounts with mapped owners, what is held on them, and its removal. No Django.

Used by its package alone.
"""
