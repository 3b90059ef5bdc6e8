"""The page of notifications and their preferences, live.

Used by gpuplatform and pages.
"""
