"""What the API answers to exceptions. Apart from `rest`, which REST framework imports before its views exist."""

from typing import Any

from django.core.exceptions import RequestDataTooBig
from rest_framework import status
from rest_framework.exceptions import APIException
from rest_framework.response import Response
from rest_framework.views import exception_handler


class BodyTooLargeError(APIException):
    """The body is above Django's DATA_UPLOAD_MAX_MEMORY_SIZE."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = "The body of the request is too large."


def answer_to(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return REST framework's answer to an exception; Django's own refusal of a large body gets one too."""
    return exception_handler(BodyTooLargeError() if isinstance(error, RequestDataTooBig) else error, context)
