"""The app proxy's listener: connections, requests, tunnels and their ends.

Imported by the data plane's commands.
"""
