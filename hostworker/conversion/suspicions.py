"""Files that look like secrets, by their paths and by what is in them. Pure, and a help, not a guarantee."""

import re
from posixpath import basename
from typing import Final

# By path: what keeps secrets by its nature, wherever it lies.
_PATHS: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"(?:^|.*/)id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?", "a private SSH key"),
        (r".*/\.netrc", "passwords of servers (netrc)"),
        (r".*/\.git-credentials", "passwords of Git servers"),
        (r".*/\.aws/credentials", "keys of AWS"),
        (r".*/\.docker/config\.json", "logins of container registries"),
        (r".*/\.kube/config", "keys of a Kubernetes cluster"),
        (r".*/\.pypirc", "passwords of package indexes"),
        (r".*/\.huggingface/token|.*/huggingface/token", "a token of Hugging Face"),
        (r".*/\.(?:bash|zsh|python|psql|mysql)_history", "a history of commands, which may hold passwords"),
        (r".*/\.env(?:\.[\w-]+)?", "a file of environment variables"),
        (r".*/(?:\.?kaggle)/kaggle\.json", "a token of Kaggle"),
    )
)
# By content, where it is text: keys and tokens that have a form of their own.
_CONTENTS: Final[tuple[tuple[re.Pattern[bytes], str], ...]] = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----\s+[A-Za-z0-9+/=:]", "a private key"),
        (rb"\bAKIA[0-9A-Z]{16}\b", "an access key of AWS"),
        (rb"\bgh[pousr]_[A-Za-z0-9]{36}\b|\bgithub_pat_[A-Za-z0-9_]{60,}", "a token of GitHub"),
        (rb"\bglpat-[A-Za-z0-9_-]{20}", "a token of GitLab"),
        (rb"\bhf_[A-Za-z0-9]{34}\b", "a token of Hugging Face"),
        (rb"\bsk-(?:proj-|ant-)?[A-Za-z0-9_-]{40,}", "a key of an API"),
        (rb"\bxox[abps]-[A-Za-z0-9-]{20,}", "a token of Slack"),
        (rb"\bpypi-[A-Za-z0-9_-]{80,}", "a token of PyPI"),
    )
)
_ADDRESS: Final = re.compile(rb"https?://[^\s/:@\"']+:[^\s/:@\"'{}$<]{3,}@[\w.-]+")
_LARGEST_BYTES: Final = 64 * 1024  # of a file that is looked into: keys and settings are small
_CODE: Final = (
    ".py",
    ".pyc",
    ".pyi",
    ".so",
    ".c",
    ".h",
    ".cpp",
    ".js",
    ".map",
    ".ipynb",
    ".rst",
    ".md",
    ".html",
    ".gz",
)
_CODE_FOLDERS: Final = ("/site-packages/", "/dist-packages/", "/usr/share/doc/", "/usr/include/")


def suspicion(path: str, size_bytes: int, head: bytes) -> str:
    """Return what the file seems to hold, in words, or ""; `head` are its first bytes."""
    for pattern, words in _PATHS:
        if pattern.fullmatch(path):
            return words
    if size_bytes > _LARGEST_BYTES or b"\0" in head or _is_code(path):
        return ""
    found = next((words for pattern, words in _CONTENTS if pattern.search(head)), "")
    return found or ("an address with a password in it" if not path.endswith(_CODE) and _ADDRESS.search(head) else "")


def _is_code(path: str) -> bool:
    """Return whether it is code or a document of a package, whose examples would be found."""
    return basename(path).endswith(_CODE) and any(folder in path for folder in _CODE_FOLDERS)
