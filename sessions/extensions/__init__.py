"""Extensions of a session's end.

Used by pages.
"""
