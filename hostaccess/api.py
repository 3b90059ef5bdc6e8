"""The address at which hosts join. No account is needed: the token says who asks."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import APIException, PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.credentials.throttling import TokenThrottle
from hostaccess import services
from hostaccess.redis_users import RedisUsersUnavailableError
from hostaccess.roles import RolesUnavailableError
from restapi.views import ApiView, valid_body


class JoinSerializer(serializers.Serializer[None]):
    """A token to join with."""

    token = serializers.CharField(max_length=200)


class JoinUnavailableError(APIException):
    """PostgreSQL or Redis refuses what joining takes."""

    status_code = 503


class JoinView(ApiView):
    """Exchanges a token for the credentials of a host, once."""

    unkept_operations = frozenset({"post"})
    authentication_classes = ()
    permission_classes = ()
    throttle_classes = (TokenThrottle,)
    throttle_scope = "token"

    @extend_schema(exclude=True)
    def post(self, request: Request) -> Response:
        """Return the settings of the host that the token is for."""
        asked = valid_body(JoinSerializer, request)
        try:
            found = services.join(asked["token"])
        except services.JoinRefusedError as error:
            raise PermissionDenied(str(error)) from error
        except (RolesUnavailableError, RedisUsersUnavailableError) as error:
            raise JoinUnavailableError(str(error)) from error
        return Response(found, headers={"Cache-Control": "no-store"})
