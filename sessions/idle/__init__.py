"""Idle sessions: who is warned, ended, and how a rule would act.

Used by notifications and pages.
"""
