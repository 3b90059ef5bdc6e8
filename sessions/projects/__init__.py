"""Projects as their members use them.

Used by gpuplatform and pages.
"""
