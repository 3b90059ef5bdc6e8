"""Rules of folder names and of the paths at which sessions mount them. Pure."""

import re
from typing import Final

HOME: Final = "/home/work"  # of the user in every session; folders are mounted below it
MAX_NAME_LENGTH: Final = 64
NAME: Final = re.compile(r"\.?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?")
AUTOMOUNT_PREFIX: Final = "."  # folders whose name begins so are mounted in every session of their owner
