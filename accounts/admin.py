"""Administration of users, API tokens and SSH keys. `resources.admin` extends and registers that of users."""

from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext, ngettext

from accounts import second_factors
from accounts.models import ApiToken, AuditEntry, ResourcePolicy, SshKey, User

admin.site.unregister(Group)  # rights come from resource groups instead
for _model in (EmailAddress, Authenticator, SocialAccount, SocialApp, SocialToken):
    admin.site.unregister(_model)  # secrets, and addresses that follow the account's


class UniqueEmailForm(forms.ModelForm[User]):
    """A user form that refuses an e-mail address in use, in any case."""

    def clean_email(self) -> str:
        """Return the normalised address; raise ValidationError if it is in use."""
        email = User.objects.normalize_email(self.cleaned_data["email"])
        if User.objects.filter(email__iexact=email).exclude(pk=self.instance.pk).exists():
            raise ValidationError(gettext("A user with this e-mail address exists already."))
        return email


class NewUserForm(UniqueEmailForm, AdminUserCreationForm[User]):
    """A new user, with or without a password."""

    class Meta:
        model = User
        fields = ("email", "first_name", "last_name", "policy")


class UserForm(UniqueEmailForm, UserChangeForm[User]):
    """An existing user."""

    class Meta:
        model = User
        fields = (
            *("email", "password", "first_name", "last_name", "policy", "share_weight"),
            *("is_active", "is_superuser", "is_staff"),
        )


class UserAdmin(DjangoUserAdmin[User]):
    """Users, their policy, and whether they are superadmins."""

    form = UserForm
    add_form = NewUserForm
    list_display = ("email", "first_name", "last_name", "policy", "is_active", "is_superuser", "last_login")
    list_filter = ("is_active", "is_superuser", "policy")
    list_select_related = ("policy",)
    search_fields = ("email", "first_name", "last_name")
    ordering = ("email",)
    filter_horizontal = ()
    readonly_fields = ("last_login", "date_joined")
    actions: tuple[str, ...] = ("remove_second_factors",)
    fieldsets = (
        (None, {"fields": ("email", "password", "first_name", "last_name")}),
        ("Rights", {"fields": ("policy", "share_weight", "is_active", "is_superuser", "is_staff")}),
        ("History", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = (
        (None, {"fields": ("email", "first_name", "last_name", "policy")}),
        ("Password", {"fields": ("usable_password", "password1", "password2")}),
    )

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return the default policy for a new user."""
        return {"policy": ResourcePolicy.default().pk, **super().get_changeform_initial_data(request)}

    @admin.action(description="Remove second factors of selected users", permissions=("change",))
    def remove_second_factors(self, request: HttpRequest, users: QuerySet[User]) -> None:
        """Let users who have lost their second factors sign in with the password alone; sign their browsers out."""
        count = sum(bool(second_factors.remove_all(user)) for user in users)
        text = ngettext("%(count)d user had second factors.", "%(count)d users had second factors.", count)
        self.message_user(request, text % {"count": count}, messages.SUCCESS)


@admin.register(ApiToken)
class TokenAdmin(admin.ModelAdmin[ApiToken]):
    """API tokens: read-only, and revoked by deleting them."""

    list_display = ("user", "name", "token_key", "scope", "created", "expiry", "last_used_at")
    list_filter = ("scope", "created", "expiry")
    list_select_related = ("user",)
    search_fields = ("user__email", "name", "token_key")
    fields = ("user", "name", "token_key", "scope", "created", "expiry", "last_used_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False: users create their own tokens."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: a token never changes."""
        return False


@admin.register(SshKey)
class SshKeyAdmin(admin.ModelAdmin[SshKey]):
    """Public SSH keys: read-only, and revoked by deleting them."""

    list_display = ("owner", "title", "fingerprint", "created_at", "last_used_at")
    list_filter = ("created_at", "last_used_at")
    list_select_related = ("owner",)
    search_fields = ("owner__email", "title", "fingerprint")
    fields = ("owner", "title", "text", "fingerprint", "created_at", "last_used_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False: users add their own keys."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: a key never changes."""
        return False


@admin.register(AuditEntry)
class AuditEntryAdmin(admin.ModelAdmin[AuditEntry]):
    """The audit log, read-only."""

    list_display = ("at", "actor_email", "action", "object_type", "object_text", "changes_text", "address")
    list_filter = ("at", "action", "object_type")
    search_fields = ("actor_email", "object_text", "object_id", "action")
    date_hierarchy = "at"
    fields = ("at", "actor", "actor_email", "address", "action", "object_type", "object_id", "object_text", "changes")
    list_select_related = ("actor",)

    @admin.display(description="Changes")
    def changes_text(self, entry: AuditEntry) -> str:
        """Return the changes as one line."""
        return "; ".join(f"{name}: {before or '-'} → {after or '-'}" for name, (before, after) in entry.changes.items())

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False: entries are written with the acts."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: the log is never changed."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: the log is never shortened here."""
        return False
