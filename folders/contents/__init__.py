"""What a folder contains, as the API lists and changes it.

Used by deployments and pages.
"""
