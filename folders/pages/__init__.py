"""Pages of data folders in the browser.

Used by pages.
"""
