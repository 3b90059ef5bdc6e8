"""The API's exception handler. Not in `rest`, which REST framework imports before its views exist."""

from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.utils.translation import gettext as _
from rest_framework import status
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.response import Response
from rest_framework.views import exception_handler

from folders.errors import FolderError
from folders.files.errors import FilesError
from folders.responses import api_exception
from restapi.problems import messages_by_field, problem
from sessions.errors import GENERAL, RejectedError
from translation.english import from_english


class BodyTooLargeError(APIException):
    """The request body exceeds Django's DATA_UPLOAD_MAX_MEMORY_SIZE."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = "The body of the request is too large."


def handle_exception(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the problem details of an exception; also of RequestDataTooBig and of errors of sessions and folders."""
    if isinstance(error, RequestDataTooBig):
        error = BodyTooLargeError()
    elif isinstance(error, FolderError | FilesError):
        error = api_exception(error)
    elif isinstance(error, RejectedError):
        refused = {"detail" if name == GENERAL else name: text for name, text in error.errors.items()}
        error = ValidationError(context["view"].refused_fields(refused))
    response = exception_handler(error, context)
    if response is not None:
        response.data = _problem(response.status_code, _in_language(response.data), _code(error))
    return response


def _problem(status_code: int, data: Any, code: str) -> dict[str, Any]:
    """Return the problem with REST framework's data of an error: one text, or texts by field."""
    general, errors = messages_by_field(data)
    if errors and not general:
        general = [_("Invalid: %(fields)s.") % {"fields": ", ".join(errors)}]
    return problem(status_code, " ".join(general), code=code, errors=errors)


def _code(error: Exception) -> str:
    """Return REST framework's code of the error; "" where the status says it all."""
    code = error.default_code if isinstance(error, APIException) else ""
    return "" if code == APIException.default_code else code


def _in_language(data: Any) -> Any:
    """Return the texts of an error in the language that the client accepts; English is the default."""
    if isinstance(data, dict):
        return {key: _in_language(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_in_language(value) for value in data]
    return from_english(data) if isinstance(data, str) else data
