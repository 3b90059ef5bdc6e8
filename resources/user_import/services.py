"""Import of users from CSV: a plan of what each row would change, and its execution, whole or not at all."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, TypeVar

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Model
from django.utils.translation import gettext as _

from accounts import audit
from accounts.models import Membership, Project, ResourcePolicy, User
from resources.kick import kick_scheduler
from resources.models import ResourceGroup

MAX_ROWS: Final = 2000
MAX_BYTES: Final = 2**20
COLUMNS: Final = ("email", "first_name", "last_name", "policy", "share_weight", "projects", "resource_groups")
DELIMITERS: Final = ",;\t"
BETWEEN_NAMES: Final = "|"  # in a cell with several projects or groups

Named = TypeVar("Named", bound=Model)
Change = tuple[str | None, str | None]  # before, after


class UserImportError(Exception):
    """The users cannot be imported; the message says why."""


@dataclass(slots=True)
class ImportRow:
    """What a line of the file means: the user, new or known, and what becomes of them."""

    line: int
    email: str
    user: User
    is_new: bool
    changes: dict[str, Change] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)  # by column
    projects: list[Project] = field(default_factory=list)  # to join
    groups: list[ResourceGroup] = field(default_factory=list)  # to be granted


@dataclass(frozen=True, slots=True)
class UserImport:
    """The whole file as it would be imported now."""

    rows: Sequence[ImportRow]

    @property
    def error_count(self) -> int:
        """The number of rows that cannot be imported."""
        return sum(bool(row.errors) for row in self.rows)

    @property
    def new_count(self) -> int:
        """The number of accounts that would be made."""
        return sum(row.is_new for row in self.rows)

    @property
    def changed_count(self) -> int:
        """The number of accounts that would be changed."""
        return sum(bool(row.changes) and not row.is_new for row in self.rows)

    @property
    def digest(self) -> str:
        """A text that is the same as long as the import would do the same."""
        changes = [(row.email, row.is_new, sorted(row.changes.items()), sorted(row.errors)) for row in self.rows]
        return sha256(repr(changes).encode()).hexdigest()[:32]


def plan(text: str) -> UserImport:
    """Return what importing this file would do now; write nothing. Raises UserImportError for a file that is no table.

    The first line names the columns, of which `email` alone is needed. An empty cell changes nothing; new users get the
    default policy then. Projects and resource groups are added to those that a user has.
    """
    lines = list(_lines(text))
    known = User.objects.filter(email__in={values["email"].lower() for _, values in lines}).select_related("policy")
    reader = _RowReader(
        users={user.email: user for user in known.prefetch_related("memberships", "resource_groups")},
        policies=_by_name(ResourcePolicy.objects.all()),
        projects=_by_name(Project.objects.all()),
        groups=_by_name(ResourceGroup.objects.all()),
        default=ResourcePolicy.default(),
    )
    return UserImport([reader.read(number, values) for number, values in lines])


def carry_out(text: str, *, actor: User, digest: str | None = None) -> UserImport:
    """Import the file in one transaction and return what was done. New users have no password yet.

    Raises UserImportError, with nothing written, where a row is invalid, or the import would not do what the plan of
    this `digest` said.
    """
    try:
        with transaction.atomic():
            planned = plan(text)
            if planned.error_count:
                raise UserImportError(_("Nothing was imported: some rows are not valid."))
            if digest is not None and planned.digest != digest:
                raise UserImportError(_("Nothing was imported: what it would change is different by now. Look again."))
            for row in planned.rows:
                if row.changes or row.is_new:
                    _write(row, actor)
            kick_scheduler()
    except IntegrityError as error:
        raise UserImportError(_("Nothing was imported: an account was made meanwhile. Try again.")) from error
    return planned


class _RowReader:
    """Reads rows against what is stored."""

    def __init__(
        self,
        *,
        users: Mapping[str, User],
        policies: Mapping[str, ResourcePolicy],
        projects: Mapping[str, Project],
        groups: Mapping[str, ResourceGroup],
        default: ResourcePolicy,
    ) -> None:
        self._users, self._policies, self._projects, self._groups = users, policies, projects, groups
        self._default = default
        self._lines: dict[str, int] = {}  # by address

    def read(self, line: int, values: Mapping[str, str]) -> ImportRow:
        """Return what the row means."""
        email = values["email"].lower()
        known = self._users.get(email)
        row = ImportRow(line, email, known or User(email=email, policy=self._default), is_new=known is None)
        if row.is_new:
            row.user.set_unusable_password()
            row.changes["policy"] = (None, str(self._default))
        if (first := self._lines.setdefault(email, line)) != line:
            row.errors["email"] = _("The same address is in line %(line)d.") % {"line": first}
        for name in ("first_name", "last_name"):
            self._set(row, name, values.get(name, ""))
        if weight := values.get("share_weight", ""):
            is_number = weight.isascii() and weight.isdigit() and len(weight) < 10
            self._set(row, "share_weight", int(weight) if is_number else weight)
        self._set_policy(row, values.get("policy", ""))
        self._join(row, values.get("projects", ""))
        self._grant(row, values.get("resource_groups", ""))
        self._validate(row)
        return row

    def _set(self, row: ImportRow, name: str, value: Any) -> None:
        before = getattr(row.user, name)
        if value not in ("", before):
            setattr(row.user, name, value)
            row.changes[name] = (audit.as_text(name, before), audit.as_text(name, value))

    def _set_policy(self, row: ImportRow, name: str) -> None:
        if name and (found := self._find(row, "policy", self._policies, name)):
            before = None if row.is_new else str(row.user.policy)
            row.user.policy = found
            if before != str(found):
                row.changes["policy"] = (before, str(found))

    def _join(self, row: ImportRow, cell: str) -> None:
        held = set() if row.is_new else {each.project_id for each in row.user.memberships.all()}
        found = [self._find(row, "projects", self._projects, name) for name in _names(cell)]
        row.projects = [each for each in dict.fromkeys(found) if each and each.pk not in held]
        if row.projects:
            row.changes["projects"] = (None, audit.as_text("projects", row.projects))

    def _grant(self, row: ImportRow, cell: str) -> None:
        held = set() if row.is_new else {each.pk for each in row.user.resource_groups.all()}
        found = [self._find(row, "resource_groups", self._groups, name) for name in _names(cell)]
        row.groups = [each for each in dict.fromkeys(found) if each and each.pk not in held]
        if row.groups:
            row.changes["resource_groups"] = (None, audit.as_text("resource_groups", row.groups))

    def _find(self, row: ImportRow, column: str, rows: Mapping[str, Named], name: str) -> Named | None:
        if name.lower() not in rows:
            row.errors[column] = _("There is no “%(name)s”.") % {"name": name}
        return rows.get(name.lower())

    def _validate(self, row: ImportRow) -> None:
        try:
            row.user.clean_fields(exclude=["password", "policy", "language"])
        except ValidationError as error:
            for name, texts in error.message_dict.items():
                row.errors.setdefault(name, " ".join(texts))


def _lines(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number of each line that is not empty, and its cells by column. Raises UserImportError."""
    text = text.removeprefix("\ufeff")
    if "\0" in text:
        raise UserImportError(_("This is no text file."))
    head = text.lstrip("\r\n").split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=head.count)
    table = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        columns = _columns(next(table, []))
        for count, cells in enumerate(table):
            if count >= MAX_ROWS:
                raise UserImportError(_("A file has at most %(count)d rows.") % {"count": MAX_ROWS})
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) > len(columns):
                counts = {"line": table.line_num, "count": len(columns)}
                raise UserImportError(_("Line %(line)d has more than %(count)d cells.") % counts)
            values = dict.fromkeys(columns, "") | dict(zip(columns, map(str.strip, cells), strict=False))
            yield table.line_num, values
    except csv.Error as error:
        texts = {"line": str(table.line_num), "problem": str(error)}
        raise UserImportError(_("Line %(line)s cannot be read: %(problem)s.") % texts) from error


def _columns(cells: Iterable[str]) -> list[str]:
    """Return the names of the columns. Raises UserImportError."""
    columns = [cell.strip().lower().replace(" ", "_") for cell in cells]
    if unknown := [name for name in columns if name not in COLUMNS]:
        texts = {"name": unknown[0], "known": ", ".join(COLUMNS)}
        raise UserImportError(_("There is no column “%(name)s”. The first line names columns of: %(known)s.") % texts)
    if "email" not in columns:
        raise UserImportError(_("The first line must name the column “email”."))
    if len(set(columns)) < len(columns):
        raise UserImportError(_("The first line names a column twice."))
    return columns


def _names(cell: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in cell.split(BETWEEN_NAMES) if name.strip()))


def _by_name(rows: Iterable[Named]) -> dict[str, Named]:
    return {str(row).lower(): row for row in rows}


def _write(row: ImportRow, actor: User) -> None:
    own = {"first_name", "last_name", "share_weight", "policy"} & set(row.changes)
    row.user.save(update_fields=None if row.is_new else own)
    for project in row.projects:
        Membership.objects.create(user=row.user, project=project)  # one by one: signals of each are listened to
    row.user.resource_groups.add(*row.groups)
    audit.record(actor, "import", row.user, row.changes)
