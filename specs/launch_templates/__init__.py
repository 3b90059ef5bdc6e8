"""Launch templates: saved launches with parameters, in versions, of a user, a project or everybody.

Used by the rest of its package and by the launch page.
"""
