"""The API's exception handler. Not in `rest`, which REST framework imports before its views exist."""

from typing import Any

from django.core.exceptions import RequestDataTooBig
from rest_framework import status
from rest_framework.exceptions import APIException
from rest_framework.response import Response
from rest_framework.views import exception_handler

from folders.errors import FolderError
from folders.files.errors import FilesError
from folders.responses import api_exception
from translation.english import from_english


class BodyTooLargeError(APIException):
    """The request body exceeds Django's DATA_UPLOAD_MAX_MEMORY_SIZE."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = "The body of the request is too large."


def handle_exception(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return REST framework's response to an exception; also to RequestDataTooBig and to errors of folders."""
    if isinstance(error, RequestDataTooBig):
        error = BodyTooLargeError()
    elif isinstance(error, FolderError | FilesError):
        error = api_exception(error)
    response = exception_handler(error, context)
    if response is not None:
        response.data = _in_language(response.data)
    return response


def _in_language(data: Any) -> Any:
    """Return the texts of an error in the language that the client accepts; English is the default."""
    if isinstance(data, dict):
        return {key: _in_language(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_in_language(value) for value in data]
    return from_english(data) if isinstance(data, str) else data
