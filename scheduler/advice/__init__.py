"""What the launch wizard and the pages of deployments are told: whether, when and where a session would start.

Used by gpuplatform, pages and specs.
"""
