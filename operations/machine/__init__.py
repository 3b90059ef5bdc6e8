"""The machine on which an installation is set up: packages, engine, addresses, locks.

Imported by the set-up and the doctor.
"""
