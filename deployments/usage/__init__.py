"""What tokens of deployments use, and what deployments have served and held over time.

Used by endpoints, notifications and pages.
"""
