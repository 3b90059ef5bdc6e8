"""The SSH server: shells, commands, files and forwarded ports of running sessions over SSH."""
