"""One-way mirrors of directories: trees here and over SFTP, and what makes one equal another. Used by `cli.sync`."""
