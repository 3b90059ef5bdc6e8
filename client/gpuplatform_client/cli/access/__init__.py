"""Commands that enter sessions and move files: SSH, editors, mirrors and data folders."""
