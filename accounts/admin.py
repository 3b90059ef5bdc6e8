"""Administration of people. `resources.admin` registers users and policies, adding what lies above this app."""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from knox.models import AuthToken

from accounts.models import ResourcePolicy, SshKey, User

admin.site.unregister(Group)  # users are granted resource groups; Django's own groups would only confuse
admin.site.unregister(AuthToken)


class UniqueEmailForm(forms.ModelForm[User]):
    """A user whose e-mail address is nobody else's, in any case."""

    def clean_email(self) -> str:
        """Return the normalised address; raises ValidationError if it is taken."""
        email = User.objects.normalize_email(self.cleaned_data["email"])
        if User.objects.filter(email__iexact=email).exclude(pk=self.instance.pk).exists():
            raise ValidationError("A user with this e-mail address exists already.")
        return email


class NewUserForm(UniqueEmailForm, AdminUserCreationForm[User]):
    """A new user with a password, or without one until it is set."""

    class Meta:
        model = User
        fields = ("email", "first_name", "last_name", "policy")


class UserForm(UniqueEmailForm, UserChangeForm[User]):
    """An existing user."""

    class Meta:
        model = User
        fields = ("email", "password", "first_name", "last_name", "policy", "is_active", "is_superuser", "is_staff")


class UserAdmin(DjangoUserAdmin[User]):
    """People, their policy, and who is a superadmin."""

    form = UserForm
    add_form = NewUserForm
    list_display = ("email", "first_name", "last_name", "policy", "is_active", "is_superuser", "last_login")
    list_filter = ("is_active", "is_superuser", "policy")
    list_select_related = ("policy",)
    search_fields = ("email", "first_name", "last_name")
    ordering = ("email",)
    filter_horizontal = ()
    readonly_fields = ("last_login", "date_joined")
    fieldsets = (
        (None, {"fields": ("email", "password", "first_name", "last_name")}),
        ("Rights", {"fields": ("policy", "is_active", "is_superuser", "is_staff")}),
        ("History", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = (
        (None, {"fields": ("email", "first_name", "last_name", "policy")}),
        ("Password", {"fields": ("usable_password", "password1", "password2")}),
    )

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return the default policy for a new user."""
        return {"policy": ResourcePolicy.default().pk, **super().get_changeform_initial_data(request)}


@admin.register(AuthToken)
class TokenAdmin(admin.ModelAdmin[AuthToken]):
    """API tokens, which administrators may only revoke, by deleting them."""

    list_display = ("user", "token_key", "created", "expiry")
    list_filter = ("created", "expiry")
    list_select_related = ("user",)
    search_fields = ("user__email", "token_key")
    fields = ("user", "token_key", "created", "expiry")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Tokens are made by their users."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nothing about a token can change."""
        return False


@admin.register(SshKey)
class SshKeyAdmin(admin.ModelAdmin[SshKey]):
    """Public SSH keys, which administrators may only delete."""

    list_display = ("owner", "title", "fingerprint", "created_at", "last_used_at")
    list_filter = ("created_at", "last_used_at")
    list_select_related = ("owner",)
    search_fields = ("owner__email", "title", "fingerprint")
    fields = ("owner", "title", "text", "fingerprint", "created_at", "last_used_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Keys are added by their owners."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nothing about a key can change."""
        return False
