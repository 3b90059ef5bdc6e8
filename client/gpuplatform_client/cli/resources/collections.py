"""Collections of the API as values: where they are, what is shown of their objects, and which commands they have.

Fields are written as `name:KIND`, where the kind is what the help shows: "bool" is an option with its opposite, "N" a
number, "WHEN" a moment or a span from now on, "FILE" a file with the text, and "JSON" one of JSON (an option has
"-file" at its end then); "KIND|none" may be none, "KIND..." may be given several times, and "name!" must be given, as
an argument.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Shown = Literal["", "rows", "facts", "text"]


@dataclass(frozen=True, slots=True)
class Field:
    """A field that a command takes."""

    name: str
    kind: str = "TEXT"
    is_argument: bool = False
    is_list: bool = False
    may_be_none: bool = False

    @property
    def is_file(self) -> bool:
        """Whether a file has its value."""
        return self.kind in ("FILE", "JSON")

    @classmethod
    def read(cls, text: str) -> "Field":
        """Return the field that is written as `name:KIND`."""
        name, _, kind = text.partition(":")
        base, is_list = kind.removesuffix("..."), kind.endswith("...")
        return cls(
            name.removesuffix("!"), base.removesuffix("|none") or "TEXT", "!" in name, is_list, base.endswith("|none")
        )


@dataclass(frozen=True, slots=True)
class Act:
    """A command: the request that it sends, and what it shows of the response.

    The path of the request follows that of the collection, unless it begins with a slash; "{}" in it is the object that
    is named. What is shown of a response is, unless said otherwise, the field `prints`.
    """

    request: str
    help: str
    fields: str = ""
    shows: Shown = ""
    of: str = ""  # field of the response that has the rows, or the text; "" is the whole
    columns: str = ""  # those of rows; by default those of the collection
    prints: str = ""  # a field; by default the one by which objects are named
    body: Mapping[str, Any] = field(default_factory=dict)  # besides what the fields say
    many: bool = False  # takes several objects, one request each

    @property
    def method(self) -> str:
        """Of HTTP."""
        return self.request.partition(" ")[0]

    @property
    def taken(self) -> list[Field]:
        """The fields that it takes."""
        return [Field.read(text) for text in self.fields.split()]


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection of the API: `group` are the commands' first words, `thing` is what one of its objects is called."""

    group: str
    path: str
    thing: str
    columns: str = ""
    wide: str = ""
    key: str = "name"  # the field by which objects are named, besides their ids; "id": by that alone
    verbs: str = "ls show"
    fields: str = ""  # of creation and change
    filters: str = ""  # of the list
    prints: str = ""  # what is printed of a new object, such as its secret
    acts: Mapping[str, Act] = field(default_factory=dict)
    things: str = ""  # several of them
    searched: bool = False  # the list takes `search`, by which an object is found

    @property
    def plural(self) -> str:
        """What several objects are called."""
        return self.things or f"{self.thing}s"

    def commands(self) -> Iterator[tuple[str, Act]]:
        """Yield its commands with their names, the usual ones first."""
        for verb in self.verbs.split():
            yield verb, self._usual(verb)
        yield from self.acts.items()

    def path_of(self, act: Act) -> str:
        """Return the path of a request, relative to the API, with its parts that are to be filled in, and its query."""
        path = act.request.partition(" ")[2]
        if path.startswith("/"):
            return path[1:]
        base, mark, query = self.path.partition("?")
        return base + path + (mark + query if not path else "")

    def _usual(self, verb: str) -> Act:
        article = "an" if self.thing[0] in VOWELS else "a"
        settable = self.fields.replace("!", "")
        match verb:
            case "ls":
                return Act("GET ", f"List {self.plural}.", self.filters, "rows")
            case "show":
                return Act("GET {}/", f"Show {article} {self.thing}.", shows="facts")
            case "set":
                return Act("PATCH {}/", f"Change what is named of {article} {self.thing}.", settable)
            case "rm" | "revoke":
                return Act("DELETE {}/", f"{VERBS[verb]} {self.plural}.", many=True)
            case _:
                return Act("POST ", f"{VERBS[verb]} {article} {self.thing}.", self.fields, prints=self.prints)


VOWELS: Final = "aeioAS"  # as first letters are spoken: an SSH key, a user
VERBS: Final = {"rm": "Delete", "revoke": "Revoke", "create": "Make", "add": "Add"}
