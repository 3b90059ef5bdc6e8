"""API of users and their resource policies, tokens and SSH keys, and of the audit log."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from allauth.mfa.models import Authenticator
from django import forms
from django.contrib.auth.password_validation import validate_password
from django.db.models import Exists, OuterRef, QuerySet
from django.forms import modelform_factory
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from accounts.credentials import ssh_keys as services
from accounts.credentials import tokens
from accounts.forms import UniqueEmailForm
from accounts.models import DEFAULT_LIMITS, ApiToken, AuditEntry, ResourcePolicy, SshKey, TokenScope, User
from accounts.models.audit import AuditSource
from accounts.second_factors import services as second_factors
from accounts.serializers import ApiTokenSerializer, SshKeySerializer
from resources.admin_api.base import DeleteRecords, ReadRecords, RecordViewSet, SearchQuery
from resources.admin_api.serializers import RecordSerializer
from resources.hosts import bounds
from resources.models import ResourceGroup
from restapi.fields import RowNameField, ShownSerializer
from restapi.pages import NewestFirstPages

PRIMARY_FACTORS = Authenticator.objects.filter(user=OuterRef("pk"), type__in=second_factors.PRIMARY)


class UserRecordForm(UniqueEmailForm):
    """An account; without a password, its owner sets one by mail."""

    password = forms.CharField(required=False, strip=False)

    class Meta:
        model = User
        fields = (
            *("email", "first_name", "last_name", "policy", "share_weight", "is_active", "is_superuser", "is_staff"),
        )

    def clean_password(self) -> str:
        """Return the password; raise ValidationError for one that is too weak."""
        password: str = self.cleaned_data["password"]
        if password:
            validate_password(password, self.instance)
        return password

    def save(self, commit: bool = True) -> User:
        """Save the account; a new password ends its tokens, keys and login sessions."""
        if self.cleaned_data["password"]:
            self.instance.set_password(self.cleaned_data["password"])
        elif self.instance.pk is None:
            self.instance.set_unusable_password()
        return super().save(commit)


class UserRecordSerializer(RecordSerializer[User]):
    """An account, with its rights and the resource groups that are granted to it."""

    policy = RowNameField(slug_field="name", queryset=ResourcePolicy.objects.all(), required=False)
    is_superadmin = serializers.BooleanField(source="is_superuser", required=False)
    password = serializers.CharField(
        write_only=True, required=False, max_length=4096, trim_whitespace=False, help_text="None: set by a mailed link"
    )
    resource_groups = RowNameField[ResourceGroup](
        slug_field="name", many=True, required=False, queryset=ResourceGroup.objects.all(), help_text="Granted to it"
    )
    projects = serializers.SlugRelatedField[Any](slug_field="name", many=True, read_only=True)
    has_second_factor = serializers.BooleanField(read_only=True, help_text="A password alone does not sign in")

    class Meta:
        model = User
        fields = (
            *("id", "email", "first_name", "last_name", "policy", "share_weight", "is_active", "is_superadmin"),
            *("is_staff", "password", "resource_groups", "projects", "has_second_factor", "last_login", "date_joined"),
        )
        read_only_fields = ("id", "last_login", "date_joined")


class UserRecordQuery(SearchQuery):
    """Which users to list."""

    is_active = serializers.BooleanField(required=False)
    is_superadmin = serializers.BooleanField(required=False)
    policy = serializers.CharField(max_length=64, required=False, help_text="Name of the resource policy")


class UserRecordViewSet(RecordViewSet[User]):
    """Accounts of users."""

    queryset = User.objects.all()
    serializer_class = UserRecordSerializer
    unkept_operations = frozenset({"create"})  # its body has a password
    form_class = UserRecordForm
    is_scheduled = True
    query_serializers: ClassVar = {"list": UserRecordQuery}
    search_fields = ("email", "first_name", "last_name")
    filters: ClassVar = {"is_active": "is_active", "is_superadmin": "is_superuser", "policy": "policy__name"}

    def get_queryset(self) -> QuerySet[User]:
        """Return all users with what their serializer needs; three queries for any number."""
        users = super().get_queryset().select_related("policy").prefetch_related("resource_groups", "projects")
        return users.annotate(has_second_factor=Exists(PRIMARY_FACTORS)).order_by("email")

    def defaults(self) -> dict[str, Any]:
        """Return what a new user has unless the request says otherwise."""
        return {"policy": ResourcePolicy.default()}

    def check(self, instance: User | None, values: Mapping[str, Any]) -> None:
        """Raise ValidationError where the caller would lock themselves out."""
        if instance is None or instance.pk != user_of(self.request).pk:
            return
        for field, name in (("is_active", "is_active"), ("is_superuser", "is_superadmin")):
            if not values.get(field, True):
                raise ValidationError({name: [_("You cannot take this right from yourself.")]})

    def related(self, instance: User, values: Mapping[str, Any]) -> Iterable[ResourceGroup]:
        """Return the groups that are granted or were: each has a list of its users."""
        return (
            {*values.get("resource_groups", ()), *instance.resource_groups.all()} if "resource_groups" in values else ()
        )

    def finish(self, row: User, values: Mapping[str, Any]) -> None:
        """Store the grants."""
        if "resource_groups" in values:
            row.resource_groups.set(values["resource_groups"])

    def remove(self, row: User) -> None:
        """Delete the account. Raises ValidationError for the caller's own."""
        if row.pk == user_of(self.request).pk:
            raise ValidationError(_("You cannot delete your own account."))
        row.delete()

    @extend_schema(request=None, responses=UserRecordSerializer)
    @action(detail=True, methods=["post"], url_path="remove-second-factors")
    def remove_second_factors(self, request: Request, pk: str) -> Response:
        """Let a user who has lost the second factors sign in with the password alone, and sign their browsers out."""
        user = self.get_object()
        second_factors.remove_all(user, actor=user_of(request))
        return self.shown(user)


class PolicyRecordSerializer(RecordSerializer[ResourcePolicy]):
    """Limits for the sessions of a user, or of a project's members, together; null: unlimited."""

    reservations = serializers.SerializerMethodField(
        help_text="Why no start can be reserved behind sessions under it; empty: it can"
    )

    class Meta:
        model = ResourcePolicy
        exclude = ()

    def get_reservations(self, policy: ResourcePolicy) -> str:
        """Return whether starts can be reserved behind sessions under the policy."""
        return bounds.of_policy(policy) or ""


class PolicyRecordViewSet(RecordViewSet[ResourcePolicy]):
    """Resource policies."""

    queryset = ResourcePolicy.objects.order_by("name")
    serializer_class = PolicyRecordSerializer
    form_class = modelform_factory(ResourcePolicy, exclude=())
    is_scheduled = True

    def defaults(self) -> dict[str, Any]:
        """Return the lifetime of the default policy."""
        return {"max_lifetime": DEFAULT_LIMITS["max_lifetime"]}


class TokenRecordSerializer(ApiTokenSerializer):
    """A user's token for the API, without the token itself."""

    user = serializers.EmailField(source="user.email", read_only=True)
    key = serializers.CharField(source="token_key", read_only=True, help_text="Its first characters")

    class Meta(ApiTokenSerializer.Meta):
        fields = (*ApiTokenSerializer.Meta.fields, "user", "key")


class OwnedQuery(SearchQuery):
    """Which things of users to list."""

    user = serializers.EmailField(required=False, help_text="E-mail address of the owner")


class TokenQuery(OwnedQuery):
    """Which tokens to list."""

    scope = serializers.ChoiceField(TokenScope.choices, required=False)


class TokenRecordViewSet(DeleteRecords[ApiToken]):
    """API tokens of all users."""

    queryset = ApiToken.objects.select_related("user").order_by("-created", "digest")
    serializer_class = TokenRecordSerializer
    lookup_field = "uid"
    lookup_url_kwarg = "id"
    lookup_value_regex = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    query_serializers: ClassVar = {"list": TokenQuery}
    search_fields = ("name", "token_key", "user__email")
    filters: ClassVar = {"user": "user__email__iexact", "scope": "scope"}

    def remove(self, row: ApiToken) -> None:
        """Revoke the token: the next request with it is refused."""
        tokens.revoke(row)


class KeyRecordSerializer(SshKeySerializer):
    """A user's public key."""

    user = serializers.EmailField(source="owner.email", read_only=True)

    class Meta(SshKeySerializer.Meta):
        fields: tuple[str, ...] = (*SshKeySerializer.Meta.fields, "user")


class KeyRecordViewSet(DeleteRecords[SshKey]):
    """Public SSH keys of all users."""

    queryset = SshKey.objects.select_related("owner").order_by("id")
    serializer_class = KeyRecordSerializer
    query_serializers: ClassVar = {"list": OwnedQuery}
    search_fields = ("title", "fingerprint", "owner__email")
    filters: ClassVar = {"user": "owner__email__iexact"}

    def remove(self, row: SshKey) -> None:
        """Delete the key; SSH connections that use it are closed within seconds."""
        services.delete_ssh_key(row)


class AuditEntrySerializer(ShownSerializer[AuditEntry]):
    """An administrative act."""

    actor = serializers.CharField(
        source="actor_name", read_only=True, help_text="E-mail address as it was then; of a command, user and machine"
    )
    changes = serializers.DictField(
        read_only=True,
        child=serializers.ListField(child=serializers.CharField(allow_null=True), min_length=2, max_length=2),
        help_text="{field: [before, after]}; secrets are not shown",
    )

    class Meta:
        model = AuditEntry
        fields = (
            "id",
            "at",
            "actor",
            "source",
            "address",
            "action",
            "object_type",
            "object_id",
            "object_text",
            "changes",
        )


class AuditQuery(SearchQuery):
    """Which acts to list."""

    actor = serializers.CharField(max_length=254, required=False)
    source = serializers.ChoiceField(  # type: ignore[assignment]  # the metaclass collects it
        AuditSource.choices, required=False
    )
    action = serializers.CharField(max_length=64, required=False)
    object_type = serializers.CharField(max_length=100, required=False, help_text="Such as accounts.User")
    object_id = serializers.CharField(max_length=64, required=False)
    since = serializers.DateTimeField(required=False)
    until = serializers.DateTimeField(required=False)


class AuditEntryViewSet(ReadRecords[AuditEntry]):
    """The audit log, the newest first."""

    queryset = AuditEntry.objects.all()
    serializer_class = AuditEntrySerializer
    pagination_class = NewestFirstPages
    query_serializers: ClassVar = {"list": AuditQuery}
    search_fields = ("actor_name", "object_text", "object_id", "action")
    filters: ClassVar = {
        **{"actor": "actor_name__iexact", "source": "source", "action": "action", "object_type": "object_type"},
        **{"object_id": "object_id", "since": "at__gte", "until": "at__lt"},
    }
