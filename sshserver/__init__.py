"""The SSH front: shells, commands and files of running sessions over SSH, as the platform lets in."""
