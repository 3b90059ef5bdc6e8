"""The bill of materials names all that is shipped, follows the schema, and is the same each time."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from gpuplatform.bootstrap import sbom

VERSION: Final = "20261128.120000+abcdef01"
SECONDS: Final = 1_795_867_200
PACKAGES: Final = """Package: gpuplatform
Version: 1
Architecture: amd64
SHA256: 00

Package: libpq5
Version: 15.14-0+deb12u1
Architecture: amd64
Description: a library
 Package: of no field
SHA256: {digest}

"""


@pytest.fixture(scope="module")
def written() -> str:
    return sbom.text(sbom.ROOT, VERSION, SECONDS)


@pytest.fixture
def bill(written: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(written)
    return found


def urls(bill: dict[str, Any]) -> set[str]:
    return {component["purl"] for component in bill["components"] if "purl" in component}


def test_it_follows_the_schema(written: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(written) is None
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(written.replace('"library"', '"book"')) is not None


def test_the_command_prints_the_same_bytes_again(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    sbom.main([VERSION, str(SECONDS)])
    assert capsys.readouterr().out == written


def test_another_version_has_another_serial_number(bill: dict[str, Any]) -> None:
    other = json.loads(sbom.text(sbom.ROOT, "2", SECONDS))
    assert bill["serialNumber"] != other["serialNumber"]
    assert (other["metadata"]["component"]["version"], other["components"]) == ("2", bill["components"])


def test_every_pinned_package_is_there_and_no_other(bill: dict[str, Any]) -> None:
    pinned = re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==(\S+)", (sbom.ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert {f"pkg:pypi/{name.lower()}@{version}" for name, version in pinned} <= urls(bill)
    assert not [url for url in urls(bill) if re.match("pkg:(pypi/(pytest|mypy|cyclonedx)|npm/eslint)", url)]


def test_what_packages_need_is_there_with_extras(bill: dict[str, Any]) -> None:
    needed = {each["ref"]: set(each.get("dependsOn", ())) for each in bill["dependencies"]}
    names = {ref.partition("@")[0]: {need.partition("@")[0] for need in needs} for ref, needs in needed.items()}
    assert {"pkg:pypi/fido2", "pkg:pypi/pyjwt", "pkg:pypi/asgiref"} <= names["pkg:pypi/django-allauth"]
    assert "pkg:pypi/psycopg-binary" in names["pkg:pypi/psycopg"]
    assert "pkg:npm/url-parse" in names["pkg:npm/tus-js-client"]
    assert {"pkg:pypi/django-allauth", "pkg:npm/htmx.org", "fgpu"} <= names["gpuplatform"]


def test_packages_of_the_browser_have_digests(bill: dict[str, Any]) -> None:
    lock = json.loads((sbom.ROOT / "package-lock.json").read_text())["packages"]
    shipped = [entry for place, entry in lock.items() if place and not entry.get("dev")]
    found = [component for component in bill["components"] if component.get("purl", "").startswith("pkg:npm/")]
    assert len(found) == len({(entry["version"], entry["integrity"]) for entry in shipped})
    assert all(len(component["hashes"][0]["content"]) == 128 for component in found)


def test_sources_of_the_hook_have_digests(bill: dict[str, Any]) -> None:
    (hook,) = (component for component in bill["components"] if component["name"] == "fgpu")
    files = {part["name"]: part["hashes"][0]["content"] for part in hook["components"]}
    sources = {path.relative_to(sbom.ROOT).as_posix(): path for path in sbom.ROOT.glob("fgpu/src/*.[ch]")}
    assert len(sources) > 20
    assert {name: files[name] for name in sources} == {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sources.items()
    }


def test_packages_of_the_distribution_are_named(tmp_path: Path) -> None:
    packages = tmp_path / "Packages"
    packages.write_text(PACKAGES.format(digest="ab" * 32))
    found = urls(json.loads(sbom.text(sbom.ROOT, VERSION, SECONDS, packages)))
    (url,) = (url for url in found if url.startswith("pkg:deb/"))
    assert re.fullmatch(r"pkg:deb/\w+/libpq5@15\.14-0%2Bdeb12u1\?arch=amd64&distro=[\w.-]+", url)
