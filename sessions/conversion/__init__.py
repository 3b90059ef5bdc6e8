"""Images made from sessions, and reports of what a session has changed.

Used by gpuplatform, hostworker, notifications and pages.
"""
