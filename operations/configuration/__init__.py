"""The configuration of an installation as a file: export, import, and their API and page.

Used by gpuplatform.
"""
