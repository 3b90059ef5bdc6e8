"""What a pasted address means: which repository, notebook, archive or record, which branch, which file. Pure."""

import enum
import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from imports.fetcher.public_addresses import is_allowed, networks_of

MAX_ADDRESS_LENGTH: Final = 1000
MAX_REF_LENGTH: Final = 250
MAX_PATH_LENGTH: Final = 500
MAX_NAME_LENGTH: Final = 64
ARCHIVES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2")

_HOST: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_SCP: Final = re.compile(r"(?:([A-Za-z0-9_][A-Za-z0-9_.-]*)@)?([A-Za-z0-9][A-Za-z0-9.-]*):(?!//|:)([^:].*)")
_BARE: Final = re.compile(r"(?:www\.)?[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+/.+")
_REF: Final = re.compile(r"(?!-|/|.*(?:\.\.|//|@\{|\.lock(?:/|\Z)|[/.]\Z))[^\x00-\x20\x7f~^:?*\[\\]+")
_DOI: Final = re.compile(r"/?10\.5281/zenodo\.([0-9]{1,12})", re.IGNORECASE)
_RECORD: Final = re.compile(r"/records?/([0-9]{1,12})(?:/.*)?")
_UNSAFE: Final = re.compile(r"[\x00-\x20\x7f\\\ud800-\udfff]")
_OUTSIDE_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")
_USER_AND_SECRET: Final = re.compile(r"[^/@]*:[^/]*@")  # without a scheme
# Names in queries, in small letters and digits alone, whose values let anybody in who reads them.
_SECRET_NAMES: Final = re.compile(
    "(.*(token|signature|credentials?|secret|password|passphrase|(api|access|account|auth|private|secret)key))"
    "|key|sig|auth|authorization|passwd|pass|pwd|jwt"
)
# How hosts write "a file or directory of this branch" in the addresses of their pages, after the repository.
_PAGES: Final = (
    re.compile(r"(?P<repository>/.+?)/-/(?:tree|blob|raw)/(?P<rest>.+)"),  # GitLab
    re.compile(r"(?P<repository>/[^/]+/[^/]+)/(?:src|raw)/(?:branch|tag|commit)/(?P<rest>.+)"),  # Gitea, Forgejo
    re.compile(r"(?P<repository>/[^/]+/[^/]+)/(?:tree|blob|raw|commit)/(?P<rest>.+)"),  # GitHub
)
_HUGGINGFACE: Final = re.compile(
    r"(?P<repository>/(?:datasets/|spaces/)?[\w.-]+/[\w.-]+)(?:/(?:tree|blob|resolve|raw)/(?P<rest>.+))?/?", re.ASCII
)


class SourceKind(enum.Enum):
    """How what is at an address is fetched."""

    GIT = "git"
    NOTEBOOK = "notebook"
    ARCHIVE = "archive"
    HUGGINGFACE = "huggingface"
    ZENODO = "zenodo"


class AddressError(ValueError):
    """The address cannot be imported; the message says why, for the user."""


@dataclass(frozen=True, slots=True)
class Source:
    """What an address means. `ref` and `path` are as the address has them: a branch's slashes are in `path` then."""

    kind: SourceKind
    url: str
    ref: str = ""
    path: str = ""

    @property
    def host(self) -> str:
        """The host from which it is fetched."""
        scp = _SCP.fullmatch(self.url)
        return scp[2].lower() if scp else urlsplit(self.url).hostname or ""

    @property
    def is_ssh(self) -> bool:
        """Whether it is fetched by SSH."""
        return self.url.startswith("ssh://") or _SCP.fullmatch(self.url) is not None

    @property
    def name(self) -> str:
        """What a directory for it is called."""
        last = unquote(re.split(r"[/:]", urlsplit(self.url).path.rstrip("/") or self.url)[-1])
        for suffix in (".git", ".ipynb", *sorted(ARCHIVES, key=len, reverse=True)):
            last = last[: -len(suffix)] if last.lower().endswith(suffix) else last
        if self.kind is SourceKind.ZENODO:
            last = f"zenodo-{last}"
        return _OUTSIDE_NAMES.sub("-", last).strip("-.")[:MAX_NAME_LENGTH].rstrip("-.") or "import"


def parse(address: str, networks: Sequence[str] = ()) -> Source:
    """Return what an address means; `networks` are those of the operator's own that may be reached.

    Raises AddressError.
    """
    address = address.strip().removeprefix("git+")
    _check_text(address)
    if _DOI.fullmatch(address.removeprefix("doi:")):
        address = f"https://doi.org/{address.removeprefix('doi:')}"
    elif "://" not in address and _BARE.fullmatch(address) and not _SCP.fullmatch(address):
        address = f"https://{address}"
    source = _of_ssh(address) if _is_ssh(address) else _of_page(address, networks)
    _check_host(source.host, networks)
    if source.ref and (error := ref_error(source.ref)):
        raise AddressError(error)
    if source.path and (error := path_error(source.path)):
        raise AddressError(error)
    return source


def with_choice(source: Source, ref: str, path: str) -> Source:
    """Return the source at another branch or with another file to open; an empty one is as the address says."""
    if ref:
        source = replace(source, ref=ref, path="")
    return replace(source, path=path) if path else source


def ref_error(ref: str) -> str:
    """Return why a branch, tag or commit cannot be called so, "" if it can."""
    if len(ref) > MAX_REF_LENGTH:
        return f"The name of a branch or tag has at most {MAX_REF_LENGTH} characters."
    return "" if _REF.fullmatch(ref) else "This cannot be the name of a branch, a tag or a commit."


def path_error(path: str) -> str:
    """Return why a path cannot be one below the tree, "" if it can."""
    if len(path) > MAX_PATH_LENGTH:
        return f"A path has at most {MAX_PATH_LENGTH} characters."
    parts = path.split("/")
    if path.startswith(("/", "-")) or any(part in ("", ".", "..", ".git") for part in parts) or not path.isprintable():
        return "Write a path below the repository, such as notebooks/first.ipynb."
    return ""


def host_error(host: str) -> str:
    """Return why nothing is sent to a host of this name, "" if something can be."""
    return "" if _HOST.fullmatch(host) else "Write the name of a host, such as github.com."


def _check_text(address: str) -> None:
    if not address:
        raise AddressError("Paste the address of a repository, a notebook or an archive.")
    if len(address) > MAX_ADDRESS_LENGTH:
        raise AddressError(f"An address has at most {MAX_ADDRESS_LENGTH} characters.")
    if _UNSAFE.search(address):
        raise AddressError("An address has no spaces, backslashes or control characters.")
    if address.startswith("-"):
        raise AddressError("An address does not begin with a hyphen.")
    if "://" not in address and _USER_AND_SECRET.match(address):
        raise AddressError(_NO_SECRETS)
    if _has_secret(address):
        raise AddressError(_SIGNED)


def _has_secret(address: str) -> bool:
    """Return whether a query has a secret."""
    _before, *queries = re.split("[?#]", address)
    pairs = (pair.partition("=") for query in queries for pair in re.split("[&;]", query))
    return any(value and _SECRET_NAMES.fullmatch(_plain(name)) for name, _equals, value in pairs)


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]", "", unquote(name).lower())


def _is_ssh(address: str) -> bool:
    return address.startswith("ssh://") or ("://" not in address and _SCP.fullmatch(address) is not None)


def _of_ssh(address: str) -> Source:
    if scp := _SCP.fullmatch(address):
        if not scp[1]:
            raise AddressError("Write an address that begins with https:// or git@.")
        if scp[3].startswith("-") or ".." in scp[3].split("/"):
            raise AddressError("The path of the repository is not one.")
        return Source(SourceKind.GIT, address)
    parts = _split(address)
    if parts.password is not None:
        raise AddressError(_NO_SECRETS)
    if parts.username and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", parts.username):
        raise AddressError("The user name in this address is not one.")
    if not parts.path.strip("/") or parts.path.startswith("/-") or ".." in parts.path.split("/"):
        raise AddressError("The path of the repository is missing, or is not one.")
    return Source(SourceKind.GIT, f"ssh://{parts.username or 'git'}@{_host_and_port(parts)}{parts.path}")


_NO_SECRETS: Final = (
    "Write no password or token into an address, where others would read it. Keep it among your import credentials."
)

_SIGNED: Final = (
    "An address with a token or signature lets in everybody who reads it, and is good for a while alone. Download the"
    " file, and upload it into a folder; or keep a token among your import credentials."
)


def _of_page(address: str, networks: Sequence[str]) -> Source:
    parts = _split(address)
    if parts.scheme not in ("https", "http"):
        raise AddressError("Write an address that begins with https://, ssh:// or git@.")
    if parts.username is not None or parts.password is not None:
        raise AddressError(_NO_SECRETS)
    if parts.scheme == "http" and not networks:
        raise AddressError("Write an address that begins with https://: what comes without TLS may be anybody's.")
    if ".." in unquote(parts.path).split("/"):
        raise AddressError("The path of this address is not one.")
    path = quote(parts.path, safe="/%:@!$&'()*+,;=~-._")
    host = _host_and_port(parts).removeprefix("www.")
    if host == "colab.research.google.com" and path.startswith("/github/"):
        host, path = "github.com", path.removeprefix("/github")
    of_host = _HOSTS.get(host, _of_repository)
    return of_host(f"{parts.scheme}://{host}", path, f"?{parts.query}" if parts.query else "")


def _of_repository(site: str, path: str, query: str) -> Source:
    """Return what a page of a host of repositories, or a file, means."""
    for pattern in _PAGES:
        if found := pattern.fullmatch(path):
            return _at(SourceKind.GIT, site + found["repository"], found["rest"])
    if path.lower().endswith(".ipynb"):
        return Source(SourceKind.NOTEBOOK, f"{site}{path}{query}")
    if path.lower().endswith(ARCHIVES):
        return Source(SourceKind.ARCHIVE, f"{site}{path}{query}")
    repository = path.rstrip("/").removesuffix("/-")
    if not repository:
        raise AddressError("This is the address of a host; add that of a repository, a notebook or an archive.")
    return Source(SourceKind.GIT, site + repository)


def _of_huggingface(site: str, path: str, query: str) -> Source:
    found = _HUGGINGFACE.fullmatch(path)
    if found is None:
        raise AddressError("Write the address of a model, a dataset or a Space, such as huggingface.co/openai/gpt2.")
    return _at(SourceKind.HUGGINGFACE, site + found["repository"], found["rest"] or "")


def _of_zenodo(site: str, path: str, query: str) -> Source:
    if found := _RECORD.fullmatch(path) or re.fullmatch(rf"/doi/?{_DOI.pattern}", path):
        return Source(SourceKind.ZENODO, f"https://zenodo.org/records/{found[1]}")
    raise AddressError("Write the address of a record of Zenodo, such as zenodo.org/records/12345.")


def _of_doi(site: str, path: str, query: str) -> Source:
    if found := _DOI.fullmatch(path):
        return Source(SourceKind.ZENODO, f"https://zenodo.org/records/{found[1]}")
    raise AddressError("Of DOIs, those of Zenodo can be imported, such as 10.5281/zenodo.12345.")


def _of_gist(site: str, path: str, query: str) -> Source:
    return Source(SourceKind.GIT, f"{site}/{path.rstrip('/').rpartition('/')[2]}")


_HOSTS: Final[dict[str, Callable[[str, str, str], Source]]] = {
    "huggingface.co": _of_huggingface,
    "hf.co": _of_huggingface,
    "zenodo.org": _of_zenodo,
    "doi.org": _of_doi,
    "gist.github.com": _of_gist,
}


def _at(kind: SourceKind, url: str, rest: str) -> Source:
    """Return a repository at what follows in the address of a page: a branch, and a path where there is one."""
    ref, _, path = unquote(rest).strip("/").partition("/")
    return Source(kind, url, ref, path)


def _split(address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise AddressError("This is not an address.") from error
    if parts.scheme and not parts.hostname:
        raise AddressError("Write an address that begins with https://, ssh:// or git@.")
    if port == 0:
        raise AddressError("This is not an address.")
    return parts


def _host_and_port(parts: SplitResult) -> str:
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else str(parts.hostname)
    return f"{host}:{parts.port}" if parts.port else host


def _check_host(host: str, networks: Sequence[str]) -> None:
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        if not _HOST.fullmatch(host) or host.split(".")[-1].isdecimal():
            raise AddressError("The host of this address is not one.") from None
        if host == "localhost" or host.endswith(".localhost"):
            raise AddressError("Nothing is fetched from this host.") from None
        return
    if not is_allowed(literal, networks_of(networks)):
        raise AddressError("Nothing is fetched from this host.")
