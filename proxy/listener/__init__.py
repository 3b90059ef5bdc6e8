"""The app proxy's listener: connections, requests, tunnels and their ends.

Used by folders and gpuplatform.
"""
