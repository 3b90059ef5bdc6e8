"""Drafts of revisions, made of what a data folder holds: a model definition file, or models that MLflow stored.

Used by pages.
"""
