"""Admission control: a bounded queue of requests, fair between users, with a deadline.

Used by its package alone.
"""
