"""PostgreSQL and Redis as processes of the installation itself.

Imported by the set-up and the supervisor.
"""
