"""Idle sessions: who is warned, ended, and how a rule would act.

Imported by the tasks, the administration and pages.
"""
