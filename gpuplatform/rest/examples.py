"""Examples of the bodies that the API takes, for its description."""

from pathlib import Path
from typing import Any, Final

import yaml

EXAMPLES: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("examples.yaml").read_text())
PROBLEM: Final = {
    "type": "about:blank",
    "title": "Bad Request",
    "status": 400,
    "detail": "Invalid: cpu.",
    "code": "invalid",
    "errors": {"cpu": ["Ensure this value is greater than or equal to 1."]},
}


def add_examples(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return the OpenAPI description with the examples; a hook of drf-spectacular."""
    for operations in result["paths"].values():
        for operation in operations.values():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            example = EXAMPLES.get(operation["operationId"])
            if content is not None and example is not None:
                content["examples"] = {"Example": {"value": example}}
            for media in operation["responses"].get("400", {}).get("content", {}).values():
                media["examples"] = {"Problem": {"value": PROBLEM}}
    return result
