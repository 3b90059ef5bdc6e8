"""Use of sessions and users: what is held, sums of days, points of plots and reports.

Used by gpuplatform, hostworker, operations and pages.
"""
