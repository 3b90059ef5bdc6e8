"""Django configuration of the sshserver app."""

from django.apps import AppConfig


class SshserverConfig(AppConfig):
    """SSH and SFTP into sessions."""

    name = "sshserver"
