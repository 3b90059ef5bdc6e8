"""Where the files of folders lie: storage hosts, roots and paths.

Used by gpuplatform, hostworker, operations and sshserver.
"""
