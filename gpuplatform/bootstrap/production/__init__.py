"""Sets a server or GPU host up for good, and takes that back: `manage.py install`, its page, its role of Ansible.

No Django: there are no settings yet when manage.py runs it.

Used by its package alone.
"""
