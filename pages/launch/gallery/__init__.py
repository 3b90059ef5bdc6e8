"""The gallery of launch templates: found, filled in, launched or opened in the wizard, saved, compared and deleted.

Used by its package alone.
"""
