"""Administration of users, API tokens and SSH keys. `resources.admin` extends and registers that of users."""

from typing import Any, cast

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy, ngettext

from accounts.confirmation import confirmed
from accounts.forms import UniqueEmailForm
from accounts.invitations import services as invitations
from accounts.models import AccountInvitation, ApiToken, AuditEntry, ResourcePolicy, SshKey, User
from accounts.second_factors import services as second_factors

admin.site.unregister(Group)  # rights come from resource groups instead
for _model in (EmailAddress, Authenticator, SocialAccount, SocialApp, SocialToken):
    admin.site.unregister(_model)  # secrets, and addresses that follow the account's


class NoAddMixin:
    """Of an admin whose rows are not added in the administration."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False."""
        return False


class NoChangeMixin:
    """Of an admin whose rows are not changed in the administration."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False."""
        return False


class NoDeleteMixin:
    """Of an admin whose rows are not deleted in the administration."""

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False."""
        return False


class ReadOnlyMixin(NoAddMixin, NoChangeMixin, NoDeleteMixin):
    """Of an admin whose rows are only shown in the administration, if with actions by superadmins."""

    def has_superadmin_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user is a superadmin, who may end what is everybody's."""
        return bool(request.user.is_superuser)


class ShownAdmin(ReadOnlyMixin, admin.ModelAdmin[Any]):
    """A read-only admin for rows that only services write, with all of their fields but the `hidden` ones."""

    hidden: tuple[str, ...] = ()

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields of the row."""
        return [field.name for field in self.opts.fields if field.name not in self.hidden]


class ShownInline(ReadOnlyMixin, admin.TabularInline[Any, Any]):
    """Rows that are only shown below the row that they belong to; `related` is fetched with them."""

    extra = 0
    related: tuple[str, ...] = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows with what they are shown with."""
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.select_related(*self.related) if self.related else rows


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
    @confirmed(
        gettext_lazy("Their passwords alone let them in from now on, and their browsers are signed out."),
        lambda users: [user.get_full_name() for user in users],
    )
    def remove_second_factors(self, request: HttpRequest, users: QuerySet[User]) -> None:
        """Let users who have lost their second factors sign in with the password alone; sign their browsers out."""
        count = sum(bool(second_factors.remove_all(user, actor=cast(User, request.user))) for user in users)
        text = ngettext("%(count)d user had second factors.", "%(count)d users had second factors.", count)
        self.message_user(request, text % {"count": count}, messages.SUCCESS)


@admin.register(ApiToken)
class TokenAdmin(NoAddMixin, NoChangeMixin, admin.ModelAdmin[ApiToken]):
    """API tokens: read-only, and revoked by deleting them."""

    list_display = ("user", "name", "token_key", "scope", "created", "expiry", "last_used_at")
    list_filter = ("scope", "created", "expiry")
    list_select_related = ("user",)
    search_fields = ("user__email", "name", "token_key")
    fields = ("user", "name", "token_key", "scope", "created", "expiry", "last_used_at")


@admin.register(SshKey)
class SshKeyAdmin(NoAddMixin, NoChangeMixin, admin.ModelAdmin[SshKey]):
    """Public SSH keys: read-only, and revoked by deleting them."""

    list_display = ("owner", "title", "fingerprint", "created_at", "last_used_at")
    list_filter = ("created_at", "last_used_at")
    list_select_related = ("owner",)
    search_fields = ("owner__email", "title", "fingerprint")
    fields = ("owner", "title", "text", "fingerprint", "created_at", "last_used_at")


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyMixin, admin.ModelAdmin[AuditEntry]):
    """The audit log, read-only."""

    list_display = ("at", "actor_name", "action", "object_link", "changes_text", "object_type", "source", "address")
    list_filter = ("at", "source", "action", "object_type")
    search_fields = ("actor_name", "object_text", "object_id", "action")
    date_hierarchy = "at"
    fields = (
        *("at", "actor", "actor_name", "source", "address", "action", "object_type", "object_id", "object_link"),
        "changes",
    )
    list_select_related = ("actor",)

    @admin.display(description="object", ordering="object_text")
    def object_link(self, entry: AuditEntry) -> str:
        """Return the object's name, as a link to where the administration shows it; it may be gone."""
        name = entry.object_type.lower().replace(".", "_")
        try:
            address = reverse(f"admin:{name}_change", args=[entry.object_id])
        except NoReverseMatch:
            return entry.object_text
        return format_html('<a href="{}">{}</a>', address, entry.object_text or entry.object_id)

    @admin.display(description="Changes")
    def changes_text(self, entry: AuditEntry) -> str:
        """Return the changes as one line."""
        return "; ".join(f"{name}: {before or '-'} → {after or '-'}" for name, (before, after) in entry.changes.items())


class InvitationForm(forms.ModelForm[AccountInvitation]):
    """Addresses to invite, and what their accounts will have."""

    MAX_ADDRESSES = 100

    addresses = forms.CharField(
        widget=forms.Textarea, label=gettext_lazy("E-mail addresses"), help_text=gettext_lazy("One on each line")
    )

    class Meta:
        model = AccountInvitation
        fields = ("policy", "project")

    def clean_addresses(self) -> list[str]:
        """Return the addresses; raise ValidationError with each that is none, or has an account."""
        found = list(dict.fromkeys(self.cleaned_data["addresses"].lower().split()))
        taken = set(User.objects.filter(email__in=found).values_list("email", flat=True))
        problems = [gettext("%(email)s has an account already.") % {"email": each} for each in found if each in taken]
        for each in found:
            try:
                validate_email(each)
            except ValidationError:
                problems.append(gettext("%(email)s is not an e-mail address.") % {"email": each})
        if len(found) > self.MAX_ADDRESSES:
            problems.append(gettext("At most %(count)d addresses at once.") % {"count": self.MAX_ADDRESSES})
        if problems:
            raise ValidationError(problems)
        return found


@admin.register(AccountInvitation)
class InvitationAdmin(NoChangeMixin, admin.ModelAdmin[AccountInvitation]):
    """Invitations: mailed when they are added, withdrawn by deleting them."""

    form = InvitationForm
    list_display = ("email", "policy", "project", "invited_by", "created_at", "expires_at", "accepted_at")
    list_filter = ("accepted_at", "expires_at")
    list_select_related = ("policy", "project", "invited_by")
    search_fields = ("email",)
    actions = ("send_again",)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return the default policy for new accounts."""
        return {"policy": ResourcePolicy.default().pk, **super().get_changeform_initial_data(request)}

    def save_model(self, request: HttpRequest, obj: AccountInvitation, form: Any, change: bool) -> None:
        """Mail the invitations; the last one is the row that the administration speaks of."""
        by = cast(User, request.user)
        for email in form.cleaned_data["addresses"]:
            made, _ = invitations.invite(email, policy=obj.policy, project=obj.project, by=by)
        vars(obj).update(vars(made))

    @admin.action(description="Send selected invitations again", permissions=("add",))
    def send_again(self, request: HttpRequest, chosen: QuerySet[AccountInvitation]) -> None:
        """Mail new links; the former ones are void."""
        count = invitations.send_again(chosen.select_related("policy", "project"), cast(User, request.user))
        text = ngettext("%(count)d invitation is sent again.", "%(count)d invitations are sent again.", count)
        self.message_user(request, text % {"count": count}, messages.SUCCESS)
