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
    return exception_handler(error, context)
