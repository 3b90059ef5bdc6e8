"""What pasted addresses mean, and which are refused."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imports.addresses import AddressError, Source, SourceKind, parse, path_error, ref_error

GIT, NOTEBOOK, ARCHIVE = SourceKind.GIT, SourceKind.NOTEBOOK, SourceKind.ARCHIVE
HUB, ZENODO = SourceKind.HUGGINGFACE, SourceKind.ZENODO

MEANT = {
    "https://github.com/o/r": Source(GIT, "https://github.com/o/r"),
    "github.com/o/r.git": Source(GIT, "https://github.com/o/r.git"),
    "www.github.com/o/r/": Source(GIT, "https://github.com/o/r"),
    "https://github.com/o/r/tree/main": Source(GIT, "https://github.com/o/r", "main"),
    "https://github.com/o/r/tree/v1/a/b": Source(GIT, "https://github.com/o/r", "v1", "a/b"),
    "https://github.com/o/r/blob/main/n%20b.ipynb": Source(GIT, "https://github.com/o/r", "main", "n b.ipynb"),
    "https://github.com/o/r/commit/0a1b": Source(GIT, "https://github.com/o/r", "0a1b"),
    "https://github.com/o/r/archive/refs/heads/main.zip": Source(
        ARCHIVE, "https://github.com/o/r/archive/refs/heads/main.zip"
    ),
    "https://gist.github.com/u/1234abcd": Source(GIT, "https://gist.github.com/1234abcd"),
    "https://colab.research.google.com/github/o/r/blob/main/a.ipynb": Source(
        GIT, "https://github.com/o/r", "main", "a.ipynb"
    ),
    "https://gitlab.com/g/sub/p/-/tree/main/x": Source(GIT, "https://gitlab.com/g/sub/p", "main", "x"),
    "https://gitlab.example.org/g/p/-/blob/dev/x.ipynb?ref_type=heads": Source(
        GIT, "https://gitlab.example.org/g/p", "dev", "x.ipynb"
    ),
    "https://codeberg.org/o/r/src/branch/main/a.py": Source(GIT, "https://codeberg.org/o/r", "main", "a.py"),
    "https://codeberg.org/o/r/src/tag/v1": Source(GIT, "https://codeberg.org/o/r", "v1"),
    "git@github.com:o/r.git": Source(GIT, "git@github.com:o/r.git"),
    "ssh://git@host.example:2222/o/r.git": Source(GIT, "ssh://git@host.example:2222/o/r.git"),
    "git+https://host.example/r.git": Source(GIT, "https://host.example/r.git"),
    "https://host.example/a/first.ipynb": Source(NOTEBOOK, "https://host.example/a/first.ipynb"),
    "https://host.example/a.tar.gz?x=1": Source(ARCHIVE, "https://host.example/a.tar.gz?x=1"),
    "https://host.example/a.zip?key_id=1&tokens=2&token=": Source(
        ARCHIVE, "https://host.example/a.zip?key_id=1&tokens=2&token="
    ),
    "https://huggingface.co/openai/gpt2": Source(HUB, "https://huggingface.co/openai/gpt2"),
    "hf.co/datasets/o/d/tree/main/data": Source(HUB, "https://hf.co/datasets/o/d", "main", "data"),
    "https://huggingface.co/spaces/o/s/blob/main/app.py": Source(
        HUB, "https://huggingface.co/spaces/o/s", "main", "app.py"
    ),
    "https://doi.org/10.5281/zenodo.123": Source(ZENODO, "https://zenodo.org/records/123"),
    "10.5281/zenodo.123": Source(ZENODO, "https://zenodo.org/records/123"),
    "https://zenodo.org/records/123/files/a.zip": Source(ZENODO, "https://zenodo.org/records/123"),
    "https://zenodo.org/record/123": Source(ZENODO, "https://zenodo.org/records/123"),
}


@pytest.mark.parametrize("address", MEANT)
def test_an_address_means_its_source(address: str) -> None:
    assert parse(f" {address}\n") == MEANT[address]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", "Paste the address"),
        ("file:///etc/passwd", "begins with"),
        ("/etc/passwd", "begins with"),
        ("ext::sh -c id", "no spaces"),
        ("ext::sh", "begins with"),
        ("--upload-pack=touch", "hyphen"),
        ("git@-oProxyCommand=x:r", "begins with"),
        ("ssh://-oProxyCommand=x/r", "host of this address"),
        ("git@host.example:-r", "path of the repository"),
        ("ssh://git@host.example/-r", "path of the repository"),
        ("https://user:secret@host.example/r", "credentials"),
        ("https://ghp_token@github.com/o/r", "credentials"),
        ("ssh://git:secret@host.example/r", "credentials"),
        ("https://@host.example/r", "credentials"),
        ("https://:@host.example/r", "credentials"),
        ("https://:secret@host.example/r", "credentials"),
        ("user:secret@host.example/r", "credentials"),
        ("http://user:secret@host.example/r", "credentials"),
        ("git+https://token@host.example/r", "credentials"),
        ("ssh://git:@host.example/r", "credentials"),
        ("git:secret@host.example:o/r", "credentials"),
        ("https://host.example/a.zip?token=x", "credentials"),
        ("https://host.example/a.zip?TOKEN=x", "credentials"),
        ("https://host.example/a.zip?a=b&private_token=x", "credentials"),
        ("https://host.example/a.zip?a=b;access_token=x", "credentials"),
        ("https://host.example/a.ipynb?%74oken=x", "credentials"),
        ("https://host.example/a.zip?X-Amz-Signature=x&X-Amz-Date=y", "credentials"),
        ("https://host.example/a.zip?sv=1&sig=x", "credentials"),
        ("https://host.example/a.zip?key=x", "credentials"),
        ("https://host.example/a.zip?api_key=x", "credentials"),
        ("https://host.example/a.zip?password=x", "credentials"),
        ("https://host.example/a.zip?Signature=x&Key-Pair-Id=y", "credentials"),
        ("https://github.com/o/r?access_token=x", "credentials"),
        ("https://host.example/a.zip#access_token=x", "credentials"),
        ("ssh://git@host.example/r?token=x", "credentials"),
        ("git@host.example:o/r?token=x", "credentials"),
        ("http://host.example/r.git", "https://"),
        ("git://host.example/r.git", "begins with"),
        ("https://127.0.0.1/r", "Nothing is fetched"),
        ("https://[::1]/r", "Nothing is fetched"),
        ("https://169.254.169.254/latest", "Nothing is fetched"),
        ("https://[::ffff:10.0.0.1]/r", "Nothing is fetched"),
        ("https://localhost/r", "Nothing is fetched"),
        ("https://2130706433/r", "host of this address"),
        ("https://0x7f.1/r", "host of this address"),
        ("git@10.0.0.1:o/r", "Nothing is fetched"),
        ("https://github.com/", "add that of a repository"),
        ("https://github.com/o/r\x00", "control characters"),
        ("https://github.com/o/%2e%2e/r", "not one"),
        ("https://github.com/o/r/tree/-x", "branch, a tag"),
        ("https://github.com/o/r/tree/main/../../x", "not one"),
        ("https://github.com/o/r/blob/main/.git/config", "below the repository"),
        ("https://huggingface.co/models", "a model"),
        ("https://doi.org/10.1000/1", "Zenodo"),
        ("https://host.example:0/r", "not an address"),
        ("https://host.example:99999/r", "not an address"),
        ("https://github.com/" + "a" * 1000, "at most"),
    ],
)
def test_a_bad_address_is_refused_with_words(address: str, words: str) -> None:
    with pytest.raises(AddressError, match=words):
        parse(address)


def test_networks_of_the_operator_may_be_reached() -> None:
    assert parse("http://10.1.2.3/r.git", ["10.1.0.0/16"]).url == "http://10.1.2.3/r.git"
    with pytest.raises(AddressError):
        parse("http://10.2.2.3/r.git", ["10.1.0.0/16"])


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://github.com/o/my.repo.git", "my.repo"),
        ("git@github.com:o/r.git", "r"),
        ("git@host.example:r", "r"),
        ("https://host.example/a/first%20one.ipynb", "first-one"),
        ("https://host.example/data.tar.gz", "data"),
        ("https://zenodo.org/records/12", "zenodo-12"),
        ("https://host.example/%ED%95%9C", "import"),
    ],
)
def test_a_directory_is_named_after_the_source(address: str, name: str) -> None:
    assert parse(address).name == name


@given(st.text(alphabet=string.printable + "한\u202e\x00", max_size=80))
def test_any_text_is_a_safe_source_or_refused(text: str) -> None:
    for address in (text, f"https://{text}", f"https://host.example/{text}", f"git@{text}", f"ssh://{text}"):
        try:
            source = parse(address)
        except AddressError:
            continue
        assert source.url.startswith(("https://", "ssh://")) or source.is_ssh
        assert source.host
        assert not source.host.startswith("-")
        assert source.url.isprintable()
        assert " " not in source.url
        assert not ref_error(source.ref or "main")
        assert not path_error(source.path or "a")
        assert source.name
        assert not {"/", "\\", "\0"} & set(source.name)
        assert not source.name.startswith((".", "-"))
        assert parse(source.url).url == source.url
