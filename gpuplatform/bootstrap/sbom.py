"""Prints what the platform is made of that others have written, and the sources of its hook, as CycloneDX 1.6 in JSON.

    python -m gpuplatform.bootstrap.sbom VERSION SECONDS [--root FOLDER] [--packages FILE]

SECONDS, since the epoch, is the time of the commit. It reads what an installation in FOLDER ships: the distributions in
its .venv that requirements.txt asks for, the wheels of the command line, package-lock.json without what is for
development, and fgpu; FILE is a `Packages` of apt. Equal input gives equal bytes. https://cyclonedx.org/docs/1.6/json/
"""

import argparse
import base64
import hashlib
import json
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT: Final = Path(__file__).resolve().parents[2]
PARAGRAPH_FIELD: Final = re.compile(r"^(Package|Version|Architecture|SHA256): (.+)$", re.MULTILINE)
LICENSE_LENGTH: Final = 100  # some packages have the whole text there
Needs = dict[str, tuple[Component, set[str]]]  # by name: what it is, and the names that it needs


def main(arguments: list[str] | None = None) -> None:
    """Print the bill of materials."""
    parser = argparse.ArgumentParser(prog="sbom")
    parser.add_argument("version")
    parser.add_argument("seconds", type=int)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--packages", type=Path)
    given = parser.parse_args(arguments)
    sys.stdout.write(text(given.root, given.version, given.seconds, given.packages))


def text(root: Path, version: str, seconds: int, packages: Path | None = None) -> str:
    """Return the bill of materials of an installation; `packages` are those of the distribution that come with it."""
    subject = Component(name="gpuplatform", version=version, type=ComponentType.APPLICATION, bom_ref="gpuplatform")
    subject.licenses.add(LicenseFactory().make_from_string("Apache-2.0"))
    bom = Bom(metadata=BomMetaData(component=subject, timestamp=datetime.fromtimestamp(seconds, UTC)))
    direct: list[Component] = []
    for needs in (_python(root), _npm(root)):
        for component, names in needs.values():
            bom.components.add(component)
            bom.register_dependency(component, [needs[name][0] for name in sorted(names & needs.keys())])
        needed = set[str]().union(*(names for _, names in needs.values()))
        direct += [component for name, (component, _) in needs.items() if name not in needed]
    others = [*_wheels(root), _hook(root), *(_debian(packages.read_text()) if packages else ())]
    bom.components.update(others)
    bom.register_dependency(subject, [*direct, *others])
    bom.serial_number = uuid5(NAMESPACE_URL, _written(bom, has_number=False))
    return _written(bom)


def _written(bom: Bom, *, has_number: bool = True) -> str:
    found = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2) + "\n"
    return found if has_number else re.sub(r'\n *"serialNumber": .*', "", found)


def _python(root: Path) -> Needs:
    """Return the installed packages that requirements.txt asks for, with all that these need."""
    folders = [str(path) for path in sorted(root.glob(".venv/lib/python3*/site-packages"))]
    installed = {canonicalize_name(each.name): each for each in distributions(path=folders)}
    lines = [line.split("#")[0].strip() for line in (root / "requirements.txt").read_text().splitlines()]
    waiting = [Requirement(line) for line in lines if line and not line.startswith("-")]
    found: Needs = {}
    while waiting:
        asked = waiting.pop()
        name = canonicalize_name(asked.name)
        if name not in installed:
            continue  # what compiles the hook is not shipped
        needed = list(_requirements(installed[name], asked.extras))
        _, names = found.setdefault(name, (_package(name, installed[name]), set()))
        new = {canonicalize_name(each.name) for each in needed} - names
        names |= new
        waiting += [each for each in needed if canonicalize_name(each.name) in new]
    return found


def _requirements(package: Distribution, extras: Iterable[str]) -> Iterator[Requirement]:
    for line in package.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": each}) for each in ("", *extras)):
            yield requirement


def _package(name: str, package: Distribution) -> Component:
    about = package.metadata
    said = [*(about.get_all("License-Expression") or ()), *(about.get_all("License") or ())]
    said += [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if line.startswith("License")]
    return _component("pypi", name, package.version, said[0] if said else "")


def _component(kind: str, name: str, version: str, licensed: str = "", **facts: str) -> Component:
    """Return a package; `facts` are the digest `sha256` or `sha512`, and the qualifiers of its package URL."""
    hashes = [
        HashType(alg=algorithm, content=facts.pop(key))
        for key, algorithm in (("sha256", HashAlgorithm.SHA_256), ("sha512", HashAlgorithm.SHA_512))
        if key in facts
    ]
    namespace, _, plain = name.rpartition("/")
    url = PackageURL(kind, facts.pop("namespace", namespace) or None, plain, version, facts)
    licenses = [_license(licensed)] if licensed.strip() else []
    return Component(name=name, version=version, purl=url, bom_ref=str(url), hashes=hashes, licenses=licenses)


def _license(said: str) -> License:
    return LicenseFactory().make_from_string(said.strip().splitlines()[0][:LICENSE_LENGTH])


def _npm(root: Path) -> Needs:
    """Return the packages of package-lock.json but those for development."""
    locked = json.loads((root / "package-lock.json").read_text())["packages"]
    found: Needs = {}
    for place, entry in locked.items():
        if place and not entry.get("dev"):
            name = place.rpartition("node_modules/")[2]
            digest = base64.b64decode(entry["integrity"].removeprefix("sha512-")).hex()
            component = _component("npm", name, entry["version"], entry.get("license", ""), sha512=digest)
            found[place] = component, {_place_of(each, place, locked) for each in entry.get("dependencies", ())}
    return found


def _place_of(name: str, place: str, locked: Mapping[str, object]) -> str:
    """Return where the package at `place` finds the package of this name, as Node looks for it."""
    while place and f"{place}/node_modules/{name}" not in locked:
        place = place.rpartition("/node_modules/")[0]
    return f"{place}/node_modules/{name}".lstrip("/")


def _wheels(root: Path) -> Iterator[Component]:
    """Yield the packages of which the command line as one file is made."""
    for path in sorted(root.glob("client/build/wheels/*.whl")):
        name, version, *_ = parse_wheel_filename(path.name)
        yield _component("pypi", name, str(version), sha256=_sha256(path), file_name=path.name)


def _hook(root: Path) -> Component:
    """Return the hook that divides a GPU, with its C sources and what is compiled of them."""
    parts = [path for folder in ("src", "arbiter", "sandbox", "sim") for path in root.glob(f"fgpu/{folder}/*.[chS]")]
    built = [path for path in root.glob("fgpu/build/**/*") if path.is_file() and "test" not in path.parts]
    files = [
        Component(
            name=(name := path.relative_to(root).as_posix()),
            type=ComponentType.FILE,
            bom_ref=name,
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=_sha256(path))],
        )
        for path in sorted([*parts, *built])
    ]
    return Component(name="fgpu", type=ComponentType.LIBRARY, bom_ref="fgpu", components=files)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _debian(packages: str) -> Iterator[Component]:
    """Yield the packages of the distribution, but the platform's own."""
    distribution = platform.freedesktop_os_release()
    for paragraph in packages.split("\n\n"):
        fields: Mapping[str, str] = dict(PARAGRAPH_FIELD.findall(paragraph))
        if fields and fields["Package"] != "gpuplatform":
            yield _component(
                "deb",
                fields["Package"],
                fields["Version"],
                sha256=fields["SHA256"],
                arch=fields["Architecture"],
                namespace=distribution["ID"],
                distro=f"{distribution['ID']}-{distribution.get('VERSION_ID', '')}",
            )


if __name__ == "__main__":
    main()
