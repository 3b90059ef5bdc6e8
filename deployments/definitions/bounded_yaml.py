"""YAML that strangers wrote: plain values with their lines, bounded in bytes, depth and values. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import yaml

MAX_BYTES: Final = 64 * 2**10
MAX_DEPTH: Final = 12
MAX_VALUES: Final = 10_000  # aliases count as what they stand for
_TAG: Final = "tag:yaml.org,2002:"
_PLAIN: Final = frozenset(f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null"))
_TEXT: Final = f"{_TAG}timestamp"  # left as it is written


class YamlError(Exception):
    """The text is no YAML that is read here; the message says why."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True)
class Located:
    """A value, and the line at which it begins."""

    value: Mapping[str, "Located"] | Sequence["Located"] | str | int | float | bool | None
    line: int

    @property
    def plain(self) -> object:
        """The value without lines."""
        if isinstance(self.value, Mapping):
            return {key: each.plain for key, each in self.value.items()}
        if isinstance(self.value, list):
            return [each.plain for each in self.value]
        return self.value


def parse(text: str) -> Located:
    """Return the one document of a text. Raises YamlError."""
    if len(text.encode()) > MAX_BYTES:
        raise YamlError(1, f"The file is larger than {MAX_BYTES // 2**10} KiB.")
    try:
        _check_depth(text)
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(mark.line + 1 if mark else 1, f"This is not YAML: {error.problem or error.context}.") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError(line, "This is not YAML: it has a character that text does not have.") from None
    if root is None:
        raise YamlError(1, "The file is empty.")
    return _Values().of(root)


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise YamlError(event.start_mark.line + 1 if event.start_mark else 1, f"Nest at most {MAX_DEPTH} levels.")


class _Values:
    """Makes values of nodes, and counts them: aliases let a short text stand for any number."""

    def __init__(self) -> None:
        self._count = 0
        self._constructor = yaml.constructor.SafeConstructor()

    def of(self, node: yaml.Node, depth: int = 0) -> Located:
        line = node.start_mark.line + 1
        self._count += 1
        if self._count > MAX_VALUES:
            raise YamlError(line, f"The file has more than {MAX_VALUES} values.")
        if depth > MAX_DEPTH:
            raise YamlError(line, f"Nest at most {MAX_DEPTH} levels.")
        if not isinstance(node, yaml.ScalarNode) and node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
            raise YamlError(line, f"The tag {_short(node.tag.removeprefix(_TAG))} is not read.")
        if isinstance(node, yaml.MappingNode):
            return Located(self._mapping(node, depth), line)
        if isinstance(node, yaml.SequenceNode):
            return Located([self.of(each, depth + 1) for each in node.value], line)
        return Located(self._scalar(node, line), line)

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Located]:
        found: dict[str, Located] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise YamlError(line, "A name is a plain text.")
            if key.value in found:
                raise YamlError(line, f"{_short(key.value)} is written twice.")
            found[key.value] = self.of(value, depth + 1)
        return found

    def _scalar(self, node: yaml.Node, line: int) -> str | int | float | bool | None:
        if node.tag == _TEXT:
            return str(node.value)
        if node.tag not in _PLAIN:
            raise YamlError(line, f"The tag {_short(node.tag.removeprefix(_TAG))} is not read.")
        try:
            value: str | int | float | bool | None = self._constructor.construct_object(node)
        except (ValueError, OverflowError):
            raise YamlError(line, f"{_short(node.value)} is not a number.") from None
        return value


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"
