"""The command palette (Ctrl-K): one field that leads to every page, action, session, folder and host by name.

Used by gpuplatform.
"""
