"""Sign-in, its lockout, its mails and its pages.

Imported by the addresses of accounts and by the administration's sign-in.
"""
