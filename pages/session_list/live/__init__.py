"""The list of sessions, live: feeds, their sockets, and the rows they send.

Imported by the sockets' addresses and the list's views.
"""
