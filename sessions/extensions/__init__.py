"""Extensions of a session's end.

Imported by the API, pages and services of launching.
"""
