"""The platform at a glance: summary, hosts, environments, and one's own limits.

Used by gpuplatform.
"""
