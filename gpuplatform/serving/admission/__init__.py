"""Admission control: a bounded queue of requests, fair between users, with a deadline.

Imported by the web process and the metrics.
"""
