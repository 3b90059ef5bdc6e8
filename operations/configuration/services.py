"""The configuration as a text that people can review: written from the tables, compared with them, and imported.

It has policies, projects, registries, images, resource groups, elastic pools, weights of GPUs, presets, idle rules and
storage roots.
Rows are known by name; they are read and validated by the serializers and forms of the API for superadmins, so a rule
exists once. Passwords are in none of it, since those serializers never show them, and what is not in a text stays as it
is.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import yaml
from django.db import transaction
from django.forms import modelform_factory
from django.http import Http404
from django.utils.translation import gettext as _
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.renderers import JSONRenderer

from accounts.models import Project, ResourcePolicy, User
from folders.storage.api import StorageRootRecordViewSet
from resources.admin_api.base import RecordViewSet, SaveRecords
from resources.admin_api.elastic import ElasticPoolViewSet
from resources.admin_api.images import ImageRecordViewSet, RegistryRecordViewSet
from resources.admin_api.machines import GpuWeightViewSet, GroupRecordViewSet, PresetRecordViewSet
from resources.admin_api.people import PolicyRecordViewSet
from resources.admin_api.serializers import RecordSerializer
from restapi.fields import RowNameField
from sessions.admin_api import IdleRuleViewSet

FORMAT: Final = 1
MAX_BYTES: Final = 2**20
LEFT_OUT: Final = frozenset({"owner", "username"})  # of images: null; of registries: it goes with a password
MAX_ROUNDS: Final = 2  # a mark, such as default image, moves to an earlier row once a later one has given it up
HEADING: Final = "# GPU Platform, without passwords. `manage.py import_config FILE` shows what it would change.\n"


class ProjectRecordSerializer(RecordSerializer[Project]):
    """A project without its members."""

    policy = RowNameField(slug_field="name", queryset=ResourcePolicy.objects.all(), required=False, allow_null=True)

    class Meta:
        model = Project
        fields = ("name", "description", "policy", "share_weight", "is_active")


class ProjectRecordViewSet(RecordViewSet[Project]):
    """Projects, as far as they are configuration."""

    queryset = Project.objects.select_related("policy").order_by("name")
    serializer_class = ProjectRecordSerializer
    form_class = modelform_factory(Project, fields=ProjectRecordSerializer.Meta.fields)
    is_scheduled = True


@dataclass(frozen=True, slots=True)
class ConfigurationSection:
    """A table of the configuration."""

    name: str
    records: type[SaveRecords[Any]]
    keys: tuple[str, ...] = ("name",)
    of_platform: Mapping[str, Any] = field(default_factory=dict)  # the rows that are configuration


# What comes later may refer to what comes before.
SECTIONS: Final = (
    ConfigurationSection("policies", PolicyRecordViewSet),
    ConfigurationSection("projects", ProjectRecordViewSet),
    ConfigurationSection("registries", RegistryRecordViewSet),
    ConfigurationSection("images", ImageRecordViewSet, ("reference",), {"owner": None}),
    ConfigurationSection("resource_groups", GroupRecordViewSet),
    ConfigurationSection("elastic_pools", ElasticPoolViewSet, ("resource_group",)),
    ConfigurationSection("gpu_weights", GpuWeightViewSet, ("model",)),
    ConfigurationSection("presets", PresetRecordViewSet, ("name", "resource_group")),
    ConfigurationSection("idle_rules", IdleRuleViewSet),
    ConfigurationSection("storage_roots", StorageRootRecordViewSet),
)


class ConfigurationError(Exception):
    """The text cannot be imported; `problems` has what is wrong by place, such as "presets small: cpu"."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{place}: {text}" for place, text in problems.items()))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class RowChange:
    """What becomes of one row."""

    section: str
    key: str
    fields: dict[str, tuple[Any, Any]]  # before, after; of a new row all that is set
    is_new: bool

    def texts(self) -> list[tuple[str, str, str]]:
        """Return name, value before, and value after of each field, as a file may have them."""
        return [
            (name, json.dumps(before, ensure_ascii=False), json.dumps(after, ensure_ascii=False))
            for name, (before, after) in self.fields.items()
        ]


Row = dict[str, Any]
Key = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class _StoredRow:
    """A row as the API shows it, without what is not configuration."""

    pk: Any
    fields: Row


Stored = dict[str, dict[Key, _StoredRow]]  # by section and key


class _PlainLoader(yaml.SafeLoader):
    """Refuses aliases, by which a short text may stand for an endless one, tags, and one name twice in a mapping."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # the stub has no types
        if isinstance(event, yaml.AliasEvent) or event.tag is not None:
            raise yaml.MarkedYAMLError(problem=_("aliases and tags are not allowed"), problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = set()
        for name, _value in node.value:
            if isinstance(name, yaml.ScalarNode):
                if name.value in names:
                    problem = _("“%(name)s” is there twice") % {"name": name.value}
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=name.start_mark)
                names.add(name.value)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found

    def construct_number(self, node: Any) -> int:
        number: int = self.construct_yaml_int(node)
        str(number)  # ValueError for one of thousands of digits, which no field could show, whatever its base
        return number


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _PlainLoader.construct_number)


class _ConfiguredRecords(SaveRecords[Any]):
    """Saves rows of a text by the view sets of the API, for a person or a command."""

    text_actor: User | None = None

    def actor(self) -> User | None:
        """Return who imports."""
        return self.text_actor


def export() -> str:
    """Return the configuration as YAML."""
    rows = {name: [row.fields for row in found.values()] for name, found in _read().items()}
    return HEADING + yaml.safe_dump({"format": FORMAT, **rows}, sort_keys=False, allow_unicode=True, width=120)


def preview(text: str) -> list[RowChange]:
    """Return what importing the text would change now; nothing is written. Raises ConfigurationError."""
    with transaction.atomic():
        changes = _import(text, actor=None)
        transaction.set_rollback(True)
    return changes


def carry_out(text: str, *, actor: User | None, digest: str | None = None) -> list[RowChange]:
    """Import the text in one transaction, and return what was changed; a second time that is nothing.

    Raises ConfigurationError, with nothing changed, where anything in it is not valid, or it would not do what the
    preview of this `digest` said.
    """
    with transaction.atomic():
        changes = _import(text, actor=actor)
        if digest is not None and digest_of(changes) != digest:
            problem = _("Nothing was imported: what it would change is different by now. Look again.")
            raise ConfigurationError({_("file"): problem})
    return changes


def digest_of(changes: list[RowChange]) -> str:
    """Return a text that is the same as long as the import would do the same."""
    return hashlib.sha256(repr(changes).encode()).hexdigest()[:32]


def _import(text: str, *, actor: User | None) -> list[RowChange]:
    wanted = _parsed(text)
    before = _read()
    problems: dict[str, str] = {}
    for section in SECTIONS:
        records = _records_of(section, actor)
        left = _by_place(section, wanted[section.name], problems)
        for number in range(1, MAX_ROUNDS + 1):
            failed = {}
            for place, row in left.items():
                try:
                    _save(section, records, row, before[section.name])
                except (APIException, Http404) as error:
                    failed[place] = row
                    if number == MAX_ROUNDS:
                        problems |= {f"{place}{name}": problem for name, problem in _problems_of(error)}
            left = failed
    if problems:
        raise ConfigurationError(problems)
    return list(_differences(before, _read()))


def _by_place(section: ConfigurationSection, rows: list[Row], problems: dict[str, str]) -> dict[str, Row]:
    """Return the rows by what names them in messages; one whose key is there twice is a problem instead."""
    found: dict[str, Row] = {}
    keys = set()
    for number, row in enumerate(rows, 1):
        key = _key_of(section, row)
        place = f"{section.name} {_key_text(key) or number}"
        if key[0] is not None and key in keys:
            problems[f"{place}: {section.keys[0]}"] = _("Two rows have the same name.")
        elif place in found:  # another key that reads the same
            found[f"{section.name} {number}"] = row
        else:
            found[place] = row
        keys.add(key)
    return found


def _parsed(text: str) -> dict[str, list[Row]]:
    """Return the rows of all sections. Raises ConfigurationError where the text has not this form."""
    where = _("file")
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise ConfigurationError({where: _("A file has at most 1 MiB.")})
    try:
        found = yaml.load(text, _PlainLoader)  # noqa: S506  # a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: of a date such as 2026-13-01
        raise ConfigurationError({where: _("This is no YAML: %(problem)s") % {"problem": error}}) from error
    if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
        raise ConfigurationError({where: _("It has to begin with “format: %(format)d”.") % {"format": FORMAT}})
    known = {section.name for section in SECTIONS}
    problems = {str(name): _("There is no such section.") for name in found if name not in known}
    for name in known & found.keys():
        if not isinstance(found[name], list) or not all(isinstance(row, dict) for row in found[name]):
            problems[name] = _("A section is a list of rows with named fields.")
    if problems:
        raise ConfigurationError(problems)
    return {name: found.get(name, []) for name in known}


def _save(section: ConfigurationSection, records: Any, row: Row, before: Mapping[Key, _StoredRow]) -> None:
    """Make the row, or change it where it differs. Raises APIException and Http404."""
    stored = before.get(_key_of(section, row))
    if stored is not None:
        row = {name: value for name, value in row.items() if not _is_same(stored.fields.get(name, ...), value)}
        if not row:
            return
    _refuse_hidden(records, row)
    records.request = SimpleNamespace(data=row, method="POST")
    records.save(records.request, None if stored is None else stored.pk)


def _refuse_hidden(records: Any, row: Row) -> None:
    """Raise ValidationError where the row has what no export has, so that no preview would show it either."""
    serializer = records.get_serializer(data=row, partial=True)
    hidden = [name for name in row if name in LEFT_OUT or getattr(serializer.fields.get(name), "write_only", False)]
    if hidden:
        serializer.is_valid()
        raise ValidationError({**serializer.errors, **{name: [_("A file cannot have this field.")] for name in hidden}})


def _is_same(stored: Any, value: Any) -> bool:
    return type(stored) is type(value) and bool(stored == value)  # 1 is not true


def _records_of(section: ConfigurationSection, actor: User | None) -> Any:
    """Return the view set of a section as it saves rows of a text."""
    kind = type(f"Configured{section.records.__name__}", (_ConfiguredRecords, section.records), {"text_actor": actor})
    records: Any = kind()
    records.action, records.format_kwarg = "partial_update", None
    records.request = SimpleNamespace(method="GET")
    return records


def _names(records: Any) -> list[str]:
    """Return the fields that a row of a file may have, in order."""
    fields = records.get_serializer().fields.items()
    return [name for name, each in fields if not (each.read_only or each.write_only or name in LEFT_OUT)]


def _read() -> Stored:
    """Return all rows as they are."""
    found: Stored = {}
    for section in SECTIONS:
        records = _records_of(section, None)
        instances = list(records.get_queryset().filter(**section.of_platform))
        shown = json.loads(JSONRenderer().render(records.get_serializer(instances, many=True).data))
        names = _names(records)
        rows = [{name: _in_order(each[name]) for name in names} for each in shown]
        found[section.name] = {
            _key_of(section, row): _StoredRow(instance.pk, row) for instance, row in zip(instances, rows, strict=True)
        }
    return found


def _in_order(value: Any) -> Any:
    """Return the names of related rows sorted; the database may return them in any order."""
    return sorted(value) if isinstance(value, list) and all(isinstance(each, str) for each in value) else value


def _key_of(section: ConfigurationSection, row: Row) -> Key:
    """Return the key of a row; None for what is no text, which the validation refuses where it must be one."""
    values = (row.get(name) for name in section.keys)
    return tuple(value if isinstance(value, str) else None for value in values)


def _key_text(key: tuple[Any, ...]) -> str:
    return " / ".join(part for part in key if part is not None)


def _differences(before: Stored, after: Stored) -> Iterator[RowChange]:
    for section, rows in after.items():
        for key, row in rows.items():
            known = before[section].get(key)
            old = {} if known is None else known.fields
            fields = {name: (old.get(name), value) for name, value in row.fields.items() if old.get(name) != value}
            if fields or known is None:
                yield RowChange(section, _key_text(key), fields, known is None)


def _problems_of(error: APIException | Http404) -> Iterator[tuple[str, str]]:
    """Yield (": field", text) of what a serializer or form has found, or what stands in the way."""
    if isinstance(error, Http404):
        yield "", _("This row was deleted just now.")
        return
    if not isinstance(error, ValidationError):
        yield "", str(error.detail)
        return
    yield from _flat("", error.detail)


def _flat(place: str, detail: Any) -> Iterator[tuple[str, str]]:
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            is_index = place and str(name).isdecimal()  # of a row within this row
            yield from _flat(f"{place} {int(name) + 1}" if is_index else f"{place}: {name}", inner)
    elif isinstance(detail, list):
        texts = [str(inner) for inner in detail if not isinstance(inner, Mapping | list)]
        if texts:
            yield place, " ".join(texts)
        for number, inner in enumerate(detail, 1):
            if isinstance(inner, Mapping | list):
                yield from _flat(f"{place} {number}", inner)
    else:
        yield place, str(detail)
