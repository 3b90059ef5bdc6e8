"""Use of sessions and users: what is held, periods, points of plots and reports.

Used by gpuplatform, hostworker and pages.
"""
