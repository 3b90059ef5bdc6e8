"""The page of one session: state, logs, terminal, ending it, and saving it as an image.

Used by its package alone.
"""
