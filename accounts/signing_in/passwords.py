"""How passwords are hashed."""

from django.contrib.auth.hashers import Argon2PasswordHasher


class Argon2idHasher(Argon2PasswordHasher):
    """Argon2id (RFC 9106) with the least that OWASP's Password Storage Cheat Sheet asks for.

    A sign-in takes some 50 ms of a core, a tenth of PBKDF2's, and 19 MiB: a class that signs in at once need not wait.
    Django's own parameters, 100 MiB in eight threads, would have a web process take 800 MiB for eight of them.
    """

    time_cost = 2
    memory_cost = 19 * 1024  # KiB
    parallelism = 1
