"""API of accounts: tokens, the current user, SSH keys and login sessions."""

import math
from datetime import timedelta

from axes.handlers.proxy import AxesProxyHandler
from axes.helpers import get_cool_off
from django.contrib.auth import authenticate
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.core.exceptions import ValidationError as InvalidPasswordError
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.contrib.knox_auth_token import KnoxTokenScheme
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import NotAuthenticated, NotFound, PermissionDenied, Throttled, ValidationError
from rest_framework.mixins import DestroyModelMixin, ListModelMixin, RetrieveModelMixin
from rest_framework.permissions import AllowAny, BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from accounts.credentials import ssh_keys as services
from accounts.credentials import tokens
from accounts.credentials.authentication import ApiTokenAuthentication
from accounts.credentials.public_keys import InvalidPublicKeyError
from accounts.credentials.ssh_address import ssh_server
from accounts.credentials.throttling import TokenThrottle
from accounts.login_sessions import services as logins
from accounts.models import ApiToken, LoginSession, SshKey, User
from accounts.second_factors import demand as demanded_factors
from accounts.second_factors import services as second_factors
from accounts.serializers import (
    ApiTokenSerializer,
    CredentialsSerializer,
    LoginSessionSerializer,
    MadeApiTokenSerializer,
    MeSerializer,
    NameSerializer,
    NewApiTokenSerializer,
    NewPasswordSerializer,
    NewSshKeySerializer,
    SshKeySerializer,
    SshServerSerializer,
    TokenSerializer,
)
from restapi.views import ApiView, ApiViewSet, valid_body


class ApiTokenScheme(KnoxTokenScheme):
    """Describes the `Authorization` header in the schema; defining the class registers it."""

    target_class = "accounts.credentials.authentication.ApiTokenAuthentication"
    name = "token"


def user_of(request: Request) -> User:
    """Return the user of the request. Raises NotAuthenticated without one."""
    if not isinstance(request.user, User):
        raise NotAuthenticated
    return request.user


def superadmin_of(request: Request) -> User:
    """Return the user of the request. Raises PermissionDenied unless it is a superadmin."""
    user = user_of(request)
    if not user.is_superuser:
        raise PermissionDenied
    return user


class ForSuperadmins(APIView):
    """A view, or set of views, for superadmins alone."""

    def check_permissions(self, request: Request) -> None:
        """Check the caller. Raises PermissionDenied unless it is a superadmin."""
        super().check_permissions(request)
        superadmin_of(request)


class TokenView(ApiView):
    """API tokens: POST exchanges e-mail and password for one, DELETE revokes it; each expires."""

    unkept_operations = frozenset({"post"})

    throttle_scope = "token"

    def get_authenticators(self) -> list[BaseAuthentication]:
        """Return token authentication for DELETE, else none: an expired token must not prevent getting a new one."""
        is_delete = self.request is not None and self.request.method == "DELETE"
        return [ApiTokenAuthentication()] if is_delete else []

    def get_permissions(self) -> list[BasePermission]:
        """Return the permissions: anybody may request a token, its bearer may delete it."""
        return [IsAuthenticated() if self.request.method == "DELETE" else AllowAny()]

    def get_throttles(self) -> list[BaseThrottle]:
        """Return the rate limit of POST."""
        return [TokenThrottle()] if self.request.method == "POST" else []

    @extend_schema(
        request=CredentialsSerializer,
        responses={
            200: TokenSerializer,
            400: OpenApiResponse(description="Wrong or malformed e-mail address, password or code"),
        },
        auth=[],
    )
    def post(self, request: Request) -> Response:
        """Exchange e-mail and password, and the code of a second factor where the account has one, for a token."""
        asked = valid_body(CredentialsSerializer, request)
        user = _authenticated(request, asked["email"].lower(), asked["password"])
        _require_second_factor(request, user, asked.get("code", ""))
        row, token = ApiToken.objects.issue(user)
        user_logged_in.send(sender=User, request=request, user=user)
        return Response(TokenSerializer({"token": token, "expiry": row.expiry}).data)

    @extend_schema(request=None, responses={204: None})
    def delete(self, request: Request) -> Response:
        """Revoke the token that this request carries. Raises NotAuthenticated where it is a login's."""
        if request.auth is None:
            raise NotAuthenticated
        ApiToken.objects.filter(pk=request.auth.pk).delete()
        user_logged_out.send(sender=User, request=request, user=request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _authenticated(request: Request, email: str, password: str) -> User:
    """Return the user of these credentials. Raises Throttled after too many failures, else ValidationError.

    django-axes marks the request it is given as locked out. It is given DRF's, so that its middleware, which checks
    Django's, does not replace this response by its HTML page.
    """
    user = authenticate(request, username=email, password=password)
    if isinstance(user, User):
        return user
    if not AxesProxyHandler.is_allowed(request, {"username": email}):
        wait = get_cool_off(request) or timedelta(hours=1)
        text = f"Too many failed attempts. Try again in {math.ceil(wait.total_seconds() / 60)} minutes."
        raise Throttled(wait=wait.total_seconds(), detail=text)
    raise ValidationError({"detail": "The e-mail address or the password is wrong."})


def _require_second_factor(request: Request, user: User, code: str) -> None:
    """Raise ValidationError unless the account has, and needs, no second factor, or `code` is one of it."""
    if demanded_factors.is_lacking(user):
        text = _("Your policy demands a second factor: set one up on the page of your account first.")
        raise ValidationError({"code": [text]})
    if not second_factors.has_any(user):
        return
    if not code:
        text = _("This account has a second factor: send a code of its authenticator app, or a recovery code.")
        raise ValidationError({"code": [text]})
    if not second_factors.is_right(request, user, code):
        raise ValidationError({"code": [_("This code is wrong, has expired or was used already.")]})


class MeView(ApiView):
    """The current user."""

    @extend_schema(responses=MeSerializer)
    def get(self, request: Request) -> Response:
        """Show the current user and the policy."""
        return Response(MeSerializer(user_of(request)).data)

    @extend_schema(request=NameSerializer, responses=MeSerializer)
    def patch(self, request: Request) -> Response:
        """Change the current user's name."""
        user = user_of(request)
        asked = valid_body(NameSerializer, request)
        for field, value in asked.items():
            setattr(user, field, value)
        user.save(update_fields=list(asked))
        return Response(MeSerializer(user).data)


class PasswordView(ApiView):
    """The current user's password."""

    unkept_operations = frozenset({"post"})

    throttle_scope = "token"
    throttle_classes = (TokenThrottle,)

    @extend_schema(
        request=NewPasswordSerializer,
        responses={204: None},
    )
    def post(self, request: Request) -> Response:
        """Change the password, which ends all tokens, SSH keys and login sessions of the user."""
        asked = valid_body(NewPasswordSerializer, request)
        try:
            user = _authenticated(request, user_of(request).email, asked["password"])
        except ValidationError as error:
            raise ValidationError({"password": [_("The password is wrong.")]}) from error
        try:
            validate_password(asked["new_password"], user)
        except InvalidPasswordError as error:
            raise ValidationError({"new_password": error.messages}) from error
        user.set_password(asked["new_password"])
        user.save(update_fields=["password"])
        return Response(status=status.HTTP_204_NO_CONTENT)


class SshKeyViewSet(ListModelMixin, RetrieveModelMixin, DestroyModelMixin, ApiViewSet[SshKey]):
    """The caller's public SSH keys, for access to the caller's sessions."""

    queryset = SshKey.objects.all()
    serializer_class = SshKeySerializer
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[SshKey]:
        """Return the caller's own keys."""
        return super().get_queryset().filter(owner=user_of(self.request))

    @extend_schema(
        request=NewSshKeySerializer,
        responses={201: SshKeySerializer},
    )
    def create(self, request: Request) -> Response:
        """Add a public key."""
        data = valid_body(NewSshKeySerializer, request)
        try:
            key = services.add_ssh_key(user_of(request), data["key"], data.get("title", ""))
        except InvalidPublicKeyError as error:
            raise ValidationError({"key": [str(error)]}) from error
        return Response(self.get_serializer(key).data, status=status.HTTP_201_CREATED)

    def perform_destroy(self, instance: SshKey) -> None:
        """Delete the key; SSH connections that use it are closed within seconds."""
        services.delete_ssh_key(instance)


class SshServerView(ApiView):
    """The platform's SSH server."""

    @extend_schema(responses={200: SshServerSerializer, 404: OpenApiResponse(description="There is no SSH server")})
    def get(self, request: Request) -> Response:
        """Show where the SSH server is, and the key by which it is recognized."""
        if (server := ssh_server()) is None:
            raise NotFound(_("This platform has no SSH server."))
        return Response(SshServerSerializer(server).data)


class ApiTokenViewSet(ListModelMixin, RetrieveModelMixin, DestroyModelMixin, ApiViewSet[ApiToken]):
    """The caller's API tokens."""

    unkept_operations = frozenset({"create"})

    queryset = ApiToken.objects.all()
    serializer_class = ApiTokenSerializer
    lookup_field = "uid"
    lookup_url_kwarg = "id"
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[ApiToken]:
        """Return the caller's own tokens."""
        return super().get_queryset().filter(user=user_of(self.request))

    @extend_schema(request=NewApiTokenSerializer, responses={201: MadeApiTokenSerializer})
    def create(self, request: Request) -> Response:
        """Make a token; only this response shows it."""
        data = valid_body(NewApiTokenSerializer, request)
        lifetime = timedelta(days=data["days"])
        try:
            row, text = tokens.create_token(user_of(request), data["name"], scope=data["scope"], lifetime=lifetime)
        except tokens.TokenRejectedError as error:
            raise ValidationError({"name": [str(error)]}) from error
        made = {**ApiTokenSerializer(row).data, "token": text}
        return Response(made, status=status.HTTP_201_CREATED)

    def perform_destroy(self, instance: ApiToken) -> None:
        """Delete the token: the next request with it is refused."""
        tokens.revoke(instance)


class LoginViewSet(ListModelMixin, DestroyModelMixin, ApiViewSet[LoginSession]):
    """The browsers in which the caller is signed in."""

    queryset = LoginSession.objects.all()
    serializer_class = LoginSessionSerializer
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[LoginSession]:
        """Return the caller's own login sessions."""
        return logins.open_logins(user_of(self.request))

    def perform_destroy(self, instance: LoginSession) -> None:
        """End the login session: its browser is signed out."""
        logins.end(instance)
