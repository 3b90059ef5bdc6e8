"""Sentences that modules compose in English where no reader is known, read from the modules' syntax trees.

For development: `make messages` writes them to `composed_sentences.json`. A string is taken as a sentence by its words;
short texts, and sentences that are composed of parts, stand whole in `translation.english_texts`. ADR 0032 says why.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from translation.text_pattern import PLACEHOLDER

# Sentences of these modules are for operators, API or SSH clients, who read English; `model_texts` has those of models.
_NOT_FOR_PAGES: Final = re.compile(
    r"(management|bootstrap|models|privileged|tests)/|^(client|proxy|fgpu|sshserver|translation|images)/|serializers\.py"
    r"|(^|_|/)api(\.py|/)|models\.py|/checks\.py|conftest|manage\.py|accounts/credentials/authentication"
    r"|^gpuplatform/(rest/|settings|serving/(request_bodies|middleware))|scheduler/simulation/"
    r"|^operations/(backups|metrics|logs|database|doctor|machine|supervisor|embedded)"
    r"|hostworker/(clusters|pilot|conversion/recipe|enforcement/programs|agent/engine_lock|simulated/)|pages/help"
    r"|^messaging/|hostworker/runtime/(sandboxes|memory|docker/events)"
    r"|folders/(files/(direct|staging|downloads/archive)|transfers/outgoing)"
    r"|^restapi/(schema|pages)|^hostaccess/|scheduler/cycle/shared_limits"
    r"|resources/(gpus/(discovery|simulated)|amounts/fields|hosts/claims|images/(background|builder|catalogue|provision|scan|wheels))"
    r"|pages/session_list/occupancy"
)
# Parts of sentences, with 7 for what is filled in; `translation.english_texts` has the whole sentences.
_PARTS: Final = (
    *("Port 7 7; it has", "1 entry is", "7 entries are", "7 deleted for ever", "7The owner's quota"),
    *("There is no room for", "7 ended77 before", "7 runs, but", "What listens there", "7 has not answered"),
    *("Not started, as folders", "7 is on the host", " Only hosts with", "7 allows ", "7 7 free when"),
    *("1 session reaches", "7 sessions reach", "Waiting for 7 on one host: 77", "With 7 fGPU a session gets"),
    *("7 on one GPU", "7 on one host, as", "7 The session's last lines", "7 is in use by 7"),
    *("It has written 7 outside", "7 is being saved as 7:7", "7 is no range of ports", "7 of 7 layers"),
    *("7: no ready host", "Its host is taken out of service7", "The project 7 has", "7 a folder called 7 already"),
    "7 ends sessions after",
)
_PROGRAM: Final = re.compile(r"^(SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|LOCK|SET) |[{}<>]|^/|==|::|=%s|: \w+=")
_MARKING: Final = {
    "gettext",
    "gettext_lazy",
    "gettext_noop",
    "_",
    "ngettext",
    "ngettext_lazy",
    "pgettext",
    "pgettext_lazy",
}
_FOR_PROGRAMS: Final = {"debug", "info", "warning", "error", "exception", "critical", "log"}  # methods of loggers
_BY_MODEL_TEXTS: Final = {"action", "display"}  # of Django's `admin`: translation.model_texts translates what they say
_FOR_OPERATORS: Final = {
    *("RuntimeError", "TypeError", "AssertionError", "NotImplementedError", "CommandError", "SetupError"),
    *("OpenApiParameter", "OpenApiResponse", "OpenApiExample", "extend_schema", "extend_schema_field"),
    *("inline_serializer", "add_argument"),
}


def composed_sentences(path: Path, source: str) -> list[str]:
    """Return the unmarked sentences of a module that are shown on pages, with `%(name)s` for what is filled in."""
    if _NOT_FOR_PAGES.search(str(path)):
        return []
    texts = {text: PLACEHOLDER.sub("7", text).replace("%%", "%") for text in _strings(ast.parse(source))}
    return [text for text, example in texts.items() if _is_sentence(example) and not example.startswith(_PARTS)]


def _strings(node: ast.AST) -> Iterator[str]:
    """Yield the string literals below a node in which nobody marked them, without docstrings."""
    if isinstance(node, ast.JoinedStr):
        yield _with_placeholders(node)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value.replace("%", "%%")
        return
    for child in ast.iter_child_nodes(node):
        is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if not is_docstring and not (isinstance(child, ast.Call) and _is_exempt(child)):
            yield from _strings(child)


def _with_placeholders(node: ast.JoinedStr) -> str:
    names: list[str] = []
    text = ""
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += str(part.value).replace("%", "%%")
        else:
            names.append(_name(part))
            repeated = names.count(names[-1])
            text += f"%({names[-1]}{repeated if repeated > 1 else ''})s"
    return text


def _name(node: ast.AST) -> str:
    """Return the name of what an expression formats, such as `most` for `size(limits.most)`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_").lower()
        case ast.Call(func=ast.Name(id="len")):
            return "count"
        case ast.Call(args=[inner, *_]) | ast.Call(func=inner):
            return _name(inner)
        case ast.FormattedValue(value=inner) | ast.Subscript(value=inner) | ast.BinOp(left=inner):
            return _name(inner)
    return "value"


def _is_sentence(text: str) -> bool:
    """Return whether a string is prose: at least three words, one of them a longer one in lower case."""
    words = text.split()
    if len(words) < 3 or _PROGRAM.search(text) or not re.match(r"[A-Z0-9\u201c\"']", text.lstrip()):
        return False
    return sum(re.fullmatch(r"[a-z\u2019'-]{2,}[.,:;!?]?", word) is not None for word in words) >= 2


def _is_exempt(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Attribute):
        owner = function.value.id if isinstance(function.value, ast.Name) else ""
        if owner == "admin" and function.attr in _BY_MODEL_TEXTS:
            return True
        return (owner in {"logger", "log"} and function.attr in _FOR_PROGRAMS) or function.attr in _FOR_OPERATORS
    return isinstance(function, ast.Name) and function.id in _MARKING | _FOR_OPERATORS
