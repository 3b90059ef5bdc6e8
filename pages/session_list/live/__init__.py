"""The list of sessions, live: feeds, their sockets, and the rows they send.

Used by gpuplatform.
"""
