"""The private network of a cluster session's members, on this host; see docs/adr/0073. No Django.

Used by operations.
"""
