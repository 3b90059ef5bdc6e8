"""Spec files: what is to run, as a text in the terms of the API; job scripts and task files of others are translated.

Read by the API, the launch page and the command line; validated by the serializers of what they make.
"""
