"""Use of sessions and users: what is held, periods, points of plots and reports.

Imported by the API, the limits, the host worker and pages.
"""
