"""Repositories: the commit that is meant, its files, its submodules, and no link that leads out of the tree."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from imports.fetcher import large_files
from imports.fetcher.git import CommitFile, GitError, Remote, Repository, remote_of
from imports.fetcher.job import FetchError, FetchJob

COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
MAX_DEPTH: Final = 3  # of submodules within submodules
MAX_SUBMODULES: Final = 64
MAX_REF_PARTS: Final = 20


class Commit(NamedTuple):
    """What is checked out: its branch or tag, its id, and what of the ref was a path after all."""

    id: str
    branch: str
    path: str


def fetch(tree: Path, job: FetchJob, scratch: Path) -> tuple[Repository, Commit]:
    """Fetch the commit that the job means into a new repository, without its files. Raises FetchError."""
    job.show("Looks for the repository")
    remote = remote_of(job.url, job, scratch)
    repository = _made(tree, remote, job, scratch)
    try:
        commit = _fetched(repository, job)
    except GitError as error:
        raise FetchError(f"The repository cannot be fetched. {error}") from error
    return repository, commit


def check_out(repository: Repository, commit: Commit, job: FetchJob, scratch: Path) -> None:
    """Write the files of the commit, of its submodules, and those that lie in LFS. Raises FetchError."""
    try:
        _check_out(repository, commit, job, scratch, depth=0, seen=[])
    except GitError as error:
        raise FetchError(f"The files cannot be written. {error}") from error


def _made(tree: Path, remote: Remote, job: FetchJob, scratch: Path) -> Repository:
    tree.mkdir()
    repository = Repository(tree, remote, job, scratch)
    try:
        repository.run("init", "--quiet")
        repository.run("remote", "add", "origin", "--", remote.url)
    except GitError as error:
        raise FetchError(f"git does not work here. {error}") from error
    return repository


def _fetched(repository: Repository, job: FetchJob) -> Commit:
    ref, path, commit = _chosen(repository, job)
    depth = [] if job.whole_history else ["--depth=1"]
    depth += ["--filter=blob:none"] if job.is_look else []
    name = ref.rpartition("refs/heads/")[2] if ref.startswith("refs/heads/") else ""
    to = f"refs/remotes/origin/{name}" if name else "refs/import/head"
    _fetch(repository, f"+{ref or commit}:{to}", depth)
    found = repository.run("rev-parse", "--verify", "--end-of-options", f"{to}^{{commit}}").decode().strip()
    return Commit(found, name or ref.removeprefix("refs/tags/"), path)


def _fetch(repository: Repository, refspec: str, options: list[str]) -> None:
    arguments = ["fetch", "--quiet", "--no-tags", "--no-recurse-submodules", *options, "--", "origin", refspec]
    repository.run(*arguments, words="Fetches the repository")


def _chosen(repository: Repository, job: FetchJob) -> tuple[str, str, str]:
    """Return the full name of the branch or tag, the path after it, and a commit where that is asked for.

    The address of a page does not say where the name of a branch ends: the longest that exists is meant.
    """
    if COMMIT.fullmatch(job.ref):
        return "", job.path, job.ref
    parts = [*job.ref.split("/"), *filter(None, job.path.split("/"))][:MAX_REF_PARTS] if job.ref else []
    shortest = len(job.ref.split("/"))
    names = ["/".join(parts[:count]) for count in range(len(parts), shortest - 1, -1)] if parts else []
    asked = [f"refs/{kind}/{name}" for name in names for kind in ("heads", "tags")] or ["HEAD"]
    listing = repository.run("ls-remote", "--symref", "--", "origin", *asked).decode(errors="replace")
    lines = [line.split("\t") for line in listing.splitlines() if "\t" in line]
    if not names:
        head = next((about[5:] for about, name in lines if about.startswith("ref: ") and name == "HEAD"), "HEAD")
        if not lines:
            raise FetchError("This repository has no commits yet.")
        return head, job.path, ""
    there = {name for _, name in lines}
    for full in asked:
        if full in there:
            name = full.split("/", 2)[2]
            return full, "/".join([*job.ref.split("/"), *filter(None, job.path.split("/"))])[len(name) + 1 :], ""
    if re.fullmatch(r"[0-9a-f]{7,39}", job.ref):
        raise FetchError(f"There is no branch or tag {job.ref}. Write a commit with all its 40 characters.")
    raise FetchError(f"The repository has no branch or tag {job.ref}.")


def _check_out(
    repository: Repository, commit: Commit, job: FetchJob, scratch: Path, *, depth: int, seen: list[str]
) -> None:
    entries = list(repository.entries(commit.id))
    job.count(sum(entry.size or 0 for entry in entries), len(entries))
    job.show(f"Writes {len(entries)} files")
    where = ["-B", commit.branch, commit.id] if _is_branch(repository, commit) else ["--detach", commit.id]
    repository.run("checkout", "--quiet", "--force", "--no-recurse-submodules", *where, "--")
    if _is_branch(repository, commit):
        repository.run("config", f"branch.{commit.branch}.remote", "origin")
        repository.run("config", f"branch.{commit.branch}.merge", f"refs/heads/{commit.branch}")
    drop_outward_links(repository.tree, [entry.path for entry in entries if entry.is_link], job)
    large_files.replace_pointers(repository, entries, job)
    if modules := [entry for entry in entries if entry.is_submodule]:
        _fetch_submodules(repository, entries, modules, job, scratch, depth=depth, seen=seen)


def _is_branch(repository: Repository, commit: Commit) -> bool:
    ref = repository.tree / ".git" / "refs" / "remotes" / "origin" / commit.branch
    return bool(commit.branch) and ref.is_file()


def drop_outward_links(tree: Path, links: list[str], job: FetchJob) -> None:
    """Remove the symbolic links that lead out of the tree, or to what belongs to git."""
    top = os.path.realpath(tree)
    for name in links:
        link = os.path.join(tree, name)
        target = os.path.realpath(link)
        parts = os.path.relpath(target, top).split(os.sep)
        if os.path.islink(link) and (parts[0] == os.pardir or ".git" in parts):
            os.unlink(link)
            job.note("Links that lead out of the tree were left out.")


def _fetch_submodules(
    repository: Repository,
    entries: list[CommitFile],
    modules: list[CommitFile],
    job: FetchJob,
    scratch: Path,
    *,
    depth: int,
    seen: list[str],
) -> None:
    """Fetch each submodule into its directory; one that cannot be fetched is left out, with a note."""
    if depth >= MAX_DEPTH:
        job.note("Submodules nested more deeply were left out.")
        return
    urls = _submodule_urls(repository, entries)
    for entry in modules:
        if len(seen) >= MAX_SUBMODULES:
            job.note(f"Only {MAX_SUBMODULES} submodules were fetched.")
            return
        seen.append(entry.path)
        try:
            _fetch_submodule(repository, entry, urls.get(entry.path, ""), job, scratch, depth=depth, seen=seen)
        except (FetchError, GitError) as error:
            job.note(f"The submodule {_shown(entry.path)} was left out. {error}"[:300])


def _fetch_submodule(
    parent: Repository, entry: CommitFile, url: str, job: FetchJob, scratch: Path, *, depth: int, seen: list[str]
) -> None:
    if not url:
        raise FetchError("Its address is not said.")
    place = parent.tree / entry.path
    within = os.path.relpath(os.path.realpath(place.parent), os.path.realpath(parent.tree)).split(os.sep)
    if within[0] == os.pardir or ".git" in within or place.is_symlink():
        raise FetchError("Its directory is not one.")
    if place.is_dir():
        place.rmdir()  # git makes it empty; with files in it this fails
    remote = remote_of(_absolute(url, parent.remote.url), job, scratch)
    repository = _made(place, remote, job, scratch)
    try:
        _fetch(repository, f"+{entry.id}:refs/import/head", ["--depth=1"])
    except GitError:  # hosts that give branches alone
        _fetch(repository, "+refs/heads/*:refs/remotes/origin/*", [])
    _check_out(repository, Commit(entry.id, "", ""), job, scratch, depth=depth + 1, seen=seen)


def _submodule_urls(repository: Repository, entries: list[CommitFile]) -> dict[str, str]:
    """Return {path: URL} of a .gitmodules that is a plain file of the commit; all else in it is not looked at."""
    own = next((each for each in entries if each.path == ".gitmodules" and each.mode == "100644"), None)
    if own is None:
        return {}
    listing = repository.run("config", "--blob", own.id, "--null", "--list").decode(errors="replace")
    found: dict[str, dict[str, str]] = {}
    for line in listing.split("\0"):
        key, _, value = line.partition("\n")
        section, _, rest = key.partition(".")
        name, _, variable = rest.rpartition(".")
        if section == "submodule" and variable in ("path", "url"):
            found.setdefault(name, {})[variable] = value
    return {each["path"]: each["url"] for each in found.values() if "path" in each and "url" in each}


def _absolute(url: str, parent: str) -> str:
    if not url.startswith(("./", "../")):
        return url
    if urlsplit(parent).scheme in ("https", "http", "ssh"):
        scheme = urlsplit(parent).scheme
        joined = urljoin(f"https:{parent.partition(':')[2].rstrip('/')}/", url)
        return f"{scheme}:{joined.partition(':')[2]}"
    host, _, path = parent.partition(":")
    return f"{host}:{urljoin(f'/{path}/', url).lstrip('/')}"


def _shown(path: str) -> str:
    return "".join(filter(str.isprintable, path))[:80]
