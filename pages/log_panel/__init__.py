"""The panel that shows output, with its colours.

Used by the pages of sessions and deployments.
"""
