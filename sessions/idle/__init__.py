"""Idle sessions: who is warned, ended, and how a rule would act.

Used by deployments, notifications and pages.
"""
