"""The page of imports: from an address to what was found there, to a folder, to the wizard filled in; and credentials.

Used by its package alone.
"""
