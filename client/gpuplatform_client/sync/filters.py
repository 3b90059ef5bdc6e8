"""What a mirror leaves out: patterns as git has them, of the command line and of .gitignore files."""

import posixpath
from collections.abc import Iterable
from typing import Final

from pathspec import GitIgnoreSpec

IGNORE_FILE: Final = ".gitignore"
GIT: Final = ".git"


class PathFilter:
    """Says what is left out of both trees; .gitignore files are learnt from the source."""

    def __init__(self, patterns: Iterable[str], *, by_gitignore: bool) -> None:
        self.by_gitignore = by_gitignore
        self._excluded = GitIgnoreSpec.from_lines(patterns)
        self._ignored: dict[str, GitIgnoreSpec] = {}  # by directory

    def learn(self, directory: str, text: str) -> None:
        """Take the patterns of a directory's .gitignore; they are for what is below it."""
        self._ignored[directory] = GitIgnoreSpec.from_lines(text.splitlines())

    def matches(self, path: str, *, is_directory: bool) -> bool:
        """Return whether a path is left out; that of a directory, with all that is below it."""
        shown = f"{path}/" if is_directory else path
        if self._excluded.match_file(shown) or (self.by_gitignore and posixpath.basename(path) == GIT):
            return True
        directory = path
        while directory:  # the nearest file that says anything counts
            directory = posixpath.dirname(directory)
            if spec := self._ignored.get(directory):
                said = spec.check_file(shown[len(directory) + 1 if directory else 0 :]).include
                if said is not None:
                    return said
        return False
