"""Where the files of folders lie: storage hosts, roots and paths.

Imported by the other rooms of folders, and by sessions that mount them.
"""
