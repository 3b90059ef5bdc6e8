"""Launch links and their badge: the addresses that open the wizard filled in, and the dialog that has them to copy.

Used by its package alone.
"""
