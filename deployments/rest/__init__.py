"""The API of deployments: what it shows, what it takes, and its views.

Used by gpuplatform, scheduler and specs.
"""
