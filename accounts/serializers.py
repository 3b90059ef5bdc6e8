"""Serializers of users, policies, tokens and SSH keys."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from accounts.credentials.public_keys import MAX_KEY_LENGTH
from accounts.credentials.ssh_address import SshServerAddress
from accounts.credentials.ssh_keys import TITLE_LENGTH
from accounts.credentials.tokens import MAX_LIFETIME
from accounts.models import ApiToken, LoginSession, ResourcePolicy, SshKey, TokenScope, User
from accounts.second_factors import services as second_factors
from restapi.fields import ShownSerializer

UNKNOWN_FIELD: Final = "There is no such field."


class StrictSerializer(serializers.Serializer[Any]):
    """A serializer that refuses unknown fields instead of ignoring them."""

    is_strict = True  # for the API's schema

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated data; raise ValidationError with the messages of invalid and unknown fields."""
        unknown = {}
        if isinstance(data, Mapping):
            unknown = {name: [UNKNOWN_FIELD] for name in data if name not in self.fields}
            unknown |= {name: ["Not a valid string."] for name in data if _is_number_for_text(self, name, data[name])}
        try:
            value = super().to_internal_value(data)
        except ValidationError as error:
            raise ValidationError({**unknown, **_by_field(error)}) from error
        if unknown:
            raise ValidationError(unknown)
        return value


def _is_number_for_text(serializer: Any, name: str, value: Any) -> bool:
    """Return whether a number was sent for a text, such as 3.10 for "3.10", which would be read as "3.1"."""
    field = serializer.fields.get(name)
    return isinstance(field, serializers.CharField) and isinstance(value, int | float | Decimal)


def _by_field(error: ValidationError) -> dict[str, Any]:
    return error.detail if isinstance(error.detail, dict) else {"non_field_errors": error.detail}


class CredentialsSerializer(StrictSerializer):
    """E-mail and password, to be exchanged for a token."""

    email = serializers.EmailField(max_length=254)
    password = serializers.CharField(max_length=4096, trim_whitespace=False, style={"input_type": "password"})
    code = serializers.CharField(
        max_length=20,
        required=False,
        allow_blank=True,
        help_text="Of the authenticator app, or a recovery code, where the account has a second factor",
    )


class TokenSerializer(serializers.Serializer[Any]):
    """A new token, which is shown once: only its digest is stored."""

    token = serializers.CharField()
    expiry = serializers.DateTimeField()


class ApiTokenSerializer(ShownSerializer[ApiToken]):
    """A token for the API, without the token itself."""

    id = serializers.UUIDField(source="uid", read_only=True)
    created_at = serializers.DateTimeField(source="created", read_only=True)

    class Meta:
        model = ApiToken
        fields: tuple[str, ...] = ("id", "name", "scope", "created_at", "expiry", "last_used_at")


class NewApiTokenSerializer(StrictSerializer):
    """A token to make."""

    name = serializers.CharField(max_length=64)
    scope = serializers.ChoiceField(TokenScope.choices, default=TokenScope.FULL.value, help_text="`read`: GET alone")
    days = serializers.IntegerField(min_value=1, max_value=MAX_LIFETIME.days, default=30, help_text="Valid for")


class MadeApiTokenSerializer(ApiTokenSerializer):
    """A token that was just made, with its text, which no other response shows."""

    token = serializers.CharField(read_only=True)

    class Meta(ApiTokenSerializer.Meta):
        fields = (*ApiTokenSerializer.Meta.fields, "token")


class LoginSessionSerializer(ShownSerializer[LoginSession]):
    """A browser in which the caller is signed in."""

    browser = serializers.CharField(read_only=True, help_text="Its name; empty if not known")
    system = serializers.CharField(read_only=True, help_text="Its operating system; empty if not known")

    class Meta:
        model = LoginSession
        fields = ("id", "browser", "system", "address", "started_at", "last_seen_at")


class PolicySerializer(ShownSerializer[ResourcePolicy]):
    """A user's policy without its amounts, which are in `/me/limits/`, and in `/storage-roots/` for storage."""

    max_lifetime = serializers.DurationField(
        allow_null=True, help_text="A session ends this long after it started running."
    )

    max_extension = serializers.DurationField(help_text="Owners may extend a running session by this much in all.")

    max_parked_time = serializers.DurationField(
        allow_null=True, help_text="A parked session ends this long after it was parked."
    )

    class Meta:
        model = ResourcePolicy
        fields = (
            *(
                "name",
                "max_lifetime",
                "max_extension",
                "max_parked",
                "max_parked_time",
                "disk_bytes",
                "disk_files",
                "max_folders",
                "max_private_images",
                "allow_sudo",
            ),
            *("allow_public_apps", "allow_conversion", "allow_unlisted_images"),
        )


class MeSerializer(ShownSerializer[User]):
    """The current user."""

    name = serializers.CharField(source="get_full_name", read_only=True)
    is_superadmin = serializers.BooleanField(source="is_superuser", read_only=True)
    policy = PolicySerializer(read_only=True)
    has_second_factor = serializers.SerializerMethodField(help_text="A password alone does not sign in")

    class Meta:
        model = User
        fields = ("email", "name", "is_superadmin", "has_second_factor", "policy")

    def get_has_second_factor(self, user: User) -> bool:
        """Return whether a password alone does not sign the user in."""
        return second_factors.has_any(user)


class NameSerializer(StrictSerializer):
    """The user's own name, as far as it is to change."""

    first_name = serializers.CharField(max_length=150, required=False, allow_blank=True)
    last_name = serializers.CharField(max_length=150, required=False, allow_blank=True)


class NewPasswordSerializer(StrictSerializer):
    """The password of now, and the new one."""

    password = serializers.CharField(max_length=4096, trim_whitespace=False, style={"input_type": "password"})
    new_password = serializers.CharField(max_length=4096, trim_whitespace=False, style={"input_type": "password"})


class SshServerSerializer(serializers.Serializer[SshServerAddress]):
    """Where the SSH server is."""

    host = serializers.CharField(read_only=True)
    port = serializers.IntegerField(read_only=True)
    known_hosts = serializers.CharField(read_only=True, help_text="Line for known_hosts; empty before its first start")


class SshKeySerializer(ShownSerializer[SshKey]):
    """A public key for SSH access to its owner's sessions."""

    key = serializers.CharField(source="text", read_only=True, help_text="One line in OpenSSH's format")

    class Meta:
        model = SshKey
        fields: tuple[str, ...] = ("id", "title", "key", "fingerprint", "created_at", "last_used_at")


class NewSshKeySerializer(StrictSerializer):
    """A public key to add."""

    key = serializers.CharField(max_length=MAX_KEY_LENGTH, help_text="One line in OpenSSH's format")
    title = serializers.CharField(
        max_length=TITLE_LENGTH, required=False, allow_blank=True, help_text="The key's own comment when left out"
    )
