"""Network sandboxes that are made ahead of the containers that join them.

Imported by the Docker runtime.
"""
