"""git as an import runs it: with no configuration but ours, no hooks, and no protocol that runs programs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from imports.fetcher import network
from imports.fetcher.job import FetchError, FetchJob

MAX_OUTPUT_BYTES: Final = 16 * 2**20
MAX_LISTING_BYTES: Final = 512 * 2**20
WATCH_SECONDS: Final = 1.0
SERVICE: Final = "/info/refs?service=git-upload-pack"
_SCP: Final = re.compile(r"(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*):(?P<path>[^-:].*)")
# Keys of hosts that many use, as they publish them; others are trusted at first use.
KNOWN_HOSTS: Final = """\
github.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl
gitlab.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAfuCHKVTjquxvt6CM6tdG4SLp1Btn/nOeHHE5UOzRdf
codeberg.org ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIVIC02vnjFyL+I4RHfvIGNtOgJMe769VTF1VR4EB3ZB
hf.co ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINJjhgtT9FOQrsVSarIoPVI1jFMh3VSHdKfdqp/O776s
"""
_OLD_FAULTS: Final = ("zeroPaddedFilemode", "missingSpaceBeforeDate", "badTimezone", "missingNameBeforeEmail")


class GitError(Exception):
    """git failed; the message is what it said."""


@dataclass
class Remote:
    """A repository to fetch from: its URL after redirects, and the configuration and variables of git for it."""

    url: str
    config: str
    ssh: str = ""

    @property
    def is_https(self) -> bool:
        """Whether it is reached by HTTP."""
        return not self.ssh


@dataclass
class CommitFile:
    """A file of a commit; `size` is None where it was not fetched."""

    mode: str
    id: str
    size: int | None
    path: str

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return self.mode == "120000"

    @property
    def is_submodule(self) -> bool:
        """Whether it is another repository's commit."""
        return self.mode == "160000"


def remote_of(url: str, job: FetchJob, scratch: Path) -> Remote:
    """Return how the repository is reached, with its address resolved and checked. Raises FetchError."""
    if found := _SCP.fullmatch(url):
        return _ssh_remote(url, found["host"], 22, job, scratch)
    parts = urlsplit(url)
    if parts.scheme == "ssh":
        if parts.password is not None or (parts.username or "").startswith("-") or parts.path.startswith("/-"):
            raise FetchError("The address of a repository is not one that is followed.")
        return _ssh_remote(url, parts.hostname or "", parts.port or 22, job, scratch)
    if parts.scheme not in ("https", "http"):
        raise FetchError(f"Nothing is fetched by {parts.scheme or 'this address'}: use https:// or git@.")
    with network.opened(url.rstrip("/") + SERVICE, job) as (_response, last):
        url = last.removesuffix(SERVICE) if last.endswith(SERVICE) else ""
    if not url:
        raise FetchError("There is no git repository at this address.")
    parts, port, address = network.checked(url, job)
    pin = f"[{address}]" if ":" in address else address
    lines = [f"[http]\n\tcurloptResolve = {parts.hostname}:{port}:{pin}"]
    if header := network.authorization(parts, job):
        site = f"{parts.scheme}://{parts.netloc}/"
        lines += [f'[http "{site}"]\n\textraHeader = "Authorization: {header["Authorization"]}"']
    return Remote(url, "\n".join(lines) + "\n")


def _ssh_remote(url: str, host: str, port: int, job: FetchJob, scratch: Path) -> Remote:
    if not network.HOST.fullmatch(host):  # it stands in a command of the shell
        raise FetchError("The host of this address is not one.")
    address = network.resolve(host, port, job, scheme="ssh")
    known, credential = scratch / "known_hosts", job.credential
    is_its_host = credential is not None and credential.host == host
    if not known.exists():
        known.write_text(KNOWN_HOSTS + (credential.known_hosts if credential else ""))
    is_known = any(line.split(" ")[0] == host for line in known.read_text().splitlines())
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(network.TIMEOUT_SECONDS),
        "HostName": address,
        "HostKeyAlias": host,
        "IdentitiesOnly": "yes",
        "StrictHostKeyChecking": "yes" if is_known else "accept-new",
        "HostKeyAlgorithms": "ssh-ed25519" if f"{host} " in KNOWN_HOSTS else "+ssh-ed25519",
        "UserKnownHostsFile": str(known),
        "GlobalKnownHostsFile": "/dev/null",
        "ProxyCommand": "none",
        "PermitLocalCommand": "no",
        "ForwardAgent": "no",
        "ClearAllForwardings": "yes",
        "ControlPath": "none",
    }
    command = "ssh -F /dev/null " + " ".join(f"-o {name}={value}" for name, value in options.items())
    if credential is not None and is_its_host and credential.private_key:
        key = scratch / "key"
        if not key.exists():
            key.touch(0o600)
            key.write_text(credential.private_key.rstrip("\n") + "\n")
        return Remote(url, "", f"{command} -i {key}")
    return Remote(url, "", f"{command} -o IdentityFile=none")


class Repository:
    """A repository that is made and filled here; `run` is the only way to git."""

    def __init__(self, tree: Path, remote: Remote, job: FetchJob, scratch: Path) -> None:
        self.tree, self.remote, self.job = tree, remote, job
        config = scratch / f"gitconfig-{len(list(scratch.iterdir()))}"
        config.touch(0o600)
        config.write_text(_configuration() + remote.config)
        allowed = "ssh" if remote.ssh else urlsplit(remote.url).scheme
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(scratch),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(config),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "GIT_ALLOW_PROTOCOL": allowed,
            "GIT_PROTOCOL_FROM_USER": "0",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_SSH_COMMAND": remote.ssh or "/bin/false",
            "GIT_SSH_VARIANT": "ssh",
        }
        if authorities := os.environ.get("SSL_CERT_FILE"):
            self._environment["GIT_SSL_CAINFO"] = authorities

    def run(self, *arguments: str, words: str = "", limit: int = MAX_OUTPUT_BYTES) -> bytes:
        """Return what git prints. With `words` the size of what it fetches is shown and bounded. Raises GitError."""
        process = subprocess.Popen(
            ["git", *arguments],
            cwd=self.tree,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that what git starts ends with it
        )
        errors: list[bytes] = []
        said = threading.Thread(target=lambda: errors.append(_tail(process)), daemon=True)
        said.start()
        over: list[FetchError] = []
        if words:
            threading.Thread(target=self._watch, args=(process, words, over), daemon=True).start()
        assert process.stdout is not None
        output = None
        try:
            with process.stdout:
                output = process.stdout.read(limit + 1)
        finally:
            if output is None or len(output) > limit:
                _kill(process)
            code = process.wait()
        said.join()
        if over:
            raise over[0]
        if len(output) > limit:
            raise FetchError("This repository has more names than are read.")
        if code:
            raise GitError(_reason(b"".join(errors)))
        return output

    def _watch(self, process: subprocess.Popen[bytes], words: str, over: list[FetchError]) -> None:
        """Show how much was fetched while the process runs, and end it where that is too much."""
        packs = self.tree / ".git" / "objects" / "pack"
        while process.poll() is None:
            size = sum(_size(each) for each in packs.glob("*")) if packs.is_dir() else 0
            self.job.show(words, size)
            try:
                self.job.check_size(size)
            except FetchError as error:
                over.append(error)
                _kill(process)
                return
            time.sleep(WATCH_SECONDS)

    def entries(self, commit: str) -> Iterator[CommitFile]:
        """Yield the files of a commit, whether they were fetched or not. Raises FetchError for too many."""
        listing = self.run("ls-tree", "-r", "-z", "--full-tree", commit, limit=MAX_LISTING_BYTES)
        named = [each.decode(errors="surrogateescape").partition("\t") for each in listing.split(b"\0") if each]
        self.job.check_size(0, len(named))
        sizes = self._sizes([about.split(" ")[2] for about, _, _ in named])
        for about, _, path in named:
            mode, _, object_id = about.split(" ")
            yield CommitFile(mode, object_id, sizes.get(object_id), path)

    def _sizes(self, ids: list[str]) -> dict[str, int]:
        """Return the sizes of the objects that are here; asks for none that is not."""
        format_ = "--batch-check=%(objectname) %(objectsize)"
        listing = self.run("cat-file", "--batch-all-objects", "--unordered", format_, limit=MAX_LISTING_BYTES)
        wanted = set(ids)
        pairs = (line.split(" ") for line in listing.decode().splitlines())
        return {name: int(size) for name, size in pairs if name in wanted}


def _configuration() -> str:
    """Return git's configuration: nothing runs, nothing is asked, and nothing leads elsewhere."""
    skipped = "".join(f"\t{name} = ignore\n" for name in _OLD_FAULTS)
    return f"""\
[core]
\thooksPath = /dev/null
\tfsmonitor = false
\tprotectHFS = true
\tprotectNTFS = true
\tcompression = 1
[init]
\ttemplateDir =
\tdefaultBranch = main
[protocol]
\tallow = never
[protocol "https"]
\tallow = always
[protocol "ssh"]
\tallow = always
[protocol "http"]
\tallow = always
[http]
\tfollowRedirects = false
\tlowSpeedLimit = 1000
\tlowSpeedTime = 60
[transfer]
\tfsckObjects = true
[fetch]
\tunpackLimit = 1
[fetch "fsck"]
{skipped}[submodule]
\trecurse = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[credential]
\thelper =
[safe]
\tdirectory = *
[advice]
\tdetachedHead = false
"""


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _tail(process: subprocess.Popen[bytes]) -> bytes:
    """Return the end of what the process writes to its errors, which may be long."""
    assert process.stderr is not None
    end = b""
    with process.stderr:
        while block := os.read(process.stderr.fileno(), 65536):
            end = (end + block)[-4096:]
    return end


def _reason(errors: bytes) -> str:
    """Return the lines of git that say what is wrong on one line, and what ssh said before the first of them."""
    lines = [line.strip() for line in re.split(r"[\r\n]", errors.decode(errors="replace")) if line.strip()]
    problems = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))]
    first = lines.index(problems[0]) if problems else len(lines)
    before = [line for line in lines[:first][-1:] if "%" not in line and not line.startswith("Warning:")]
    return " ".join("".join(filter(str.isprintable, line)) for line in (*before, *problems))[:300]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
