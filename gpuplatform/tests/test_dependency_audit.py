"""Known vulnerabilities of dependencies are found; a database that cannot be reached is no finding."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gpuplatform.bootstrap.checks import audit

SKIPPED = {"name": "django", "skip_reason": "Dependency not found on PyPI"}
FLAWED = {"name": "pillow", "version": "9.0.0", "vulns": [{"id": "PYSEC-2022-10", "fix_versions": ["9.0.1"]}]}
SOUND = {"name": "redis", "version": "8.1.0", "vulns": []}


def test_vulnerable_packages_are_named() -> None:
    (found,) = audit.python_findings({"dependencies": [SKIPPED, FLAWED, SOUND]})
    assert found == "pillow 9.0.0: PYSEC-2022-10, fixed in ['9.0.1']"
    (found,) = audit.npm_findings({"vulnerabilities": {"xterm": {"range": "<5", "severity": "high"}}})
    assert found == "xterm <5: high"
    assert audit.python_findings({"dependencies": [SOUND]}) == audit.npm_findings({"vulnerabilities": {}}) == []


@pytest.mark.parametrize(
    ("findings", "report"),
    [
        (audit.python_findings, {"dependencies": [SKIPPED]}),
        (audit.python_findings, {}),
        (audit.npm_findings, {"statusCode": 405, "message": "405 Method Not Allowed"}),
        (audit.npm_findings, {}),
    ],
)
def test_a_database_out_of_reach_is_no_finding(
    findings: Callable[[Mapping[str, Any]], list[str]], report: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(audit.AuditUnavailableError):
        findings(report)
    monkeypatch.setattr(audit, "_python_packages", lambda: findings(report))
    monkeypatch.setattr(audit, "_npm_packages", lambda: [])
    assert audit.main() == 0
    monkeypatch.setattr(audit, "_npm_packages", lambda: ["xterm"])
    assert audit.main() == 1
    assert audit.main([audit.REPORT]) == 0, "named, but no fault of the commit that CI checks"
