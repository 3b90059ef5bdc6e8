"""Launch templates: saved launches with parameters, in versions, of a user, a project or everybody.

Used by pages.
"""
