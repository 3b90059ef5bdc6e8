"""Forms of one's own account, and the look of all forms on the pages."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from accounts.credentials import ssh_keys as services
from accounts.credentials import tokens
from accounts.credentials.public_keys import MAX_KEY_LENGTH, InvalidPublicKeyError
from accounts.credentials.tokens import TokenRejectedError
from accounts.models import ApiToken, SshKey, TokenScope, User


class StyledForm(forms.Form):
    """A form whose inputs have the platform's style, and are filled in by no browser, unless they say otherwise.

    `text_attributes` are further ones of its text inputs.
    """

    text_attributes: ClassVar[Mapping[str, str]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs = {**self._attributes(field.widget), **field.widget.attrs}

    def _attributes(self, widget: forms.Widget) -> Mapping[str, str]:
        if widget.is_hidden:
            return {}
        if isinstance(widget, forms.CheckboxInput | forms.RadioSelect):  # and boxes of several choices
            return {"class": "form-check-input"}
        if isinstance(widget, forms.Select):
            return {"class": "form-select", "autocomplete": "off"}
        return {"class": "form-control", "autocomplete": "off", **self.text_attributes}


class PlatformLook(forms.Form):
    """To come first among the bases of a form of django-allauth: fields have the style and labels of the platform."""

    labels: Mapping[str, str | Promise] = {}
    help_texts: Mapping[str, str | Promise] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            is_box = isinstance(field.widget, forms.CheckboxInput)
            field.widget.attrs["class"] = "form-check-input" if is_box else "form-control"
            field.widget.attrs.pop("placeholder", None)
            if name in self.labels:
                field.label = str(self.labels[name])
            if name != "password1":  # whose help are the rules for passwords
                field.help_text = str(self.help_texts.get(name, ""))


class SshKeyForm(StyledForm):
    """A public key to add, and its title."""

    key = forms.CharField(
        label=_("Public key"),
        max_length=MAX_KEY_LENGTH,
        help_text=_("The line in the file that ends in .pub, such as ssh-ed25519 AAAA... you@laptop"),
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
    )
    title = forms.CharField(
        max_length=services.TITLE_LENGTH,
        required=False,
        label=_("Title"),
        help_text=_("Such as the computer that has the private key; empty: the comment of the key"),
    )

    def save(self, owner: User) -> SshKey | None:
        """Add and return the key; None if it is refused, with the message at its field."""
        try:
            return services.add_ssh_key(owner, self.cleaned_data["key"], self.cleaned_data["title"])
        except InvalidPublicKeyError as error:
            self.add_error("key", str(error))
            return None


class ProfileForm(forms.ModelForm[User]):
    """The user's own name."""

    class Meta:
        model = User
        fields = ("first_name", "last_name")
        widgets = {
            "first_name": forms.TextInput(attrs={"class": "form-control", "autocomplete": "given-name"}),
            "last_name": forms.TextInput(attrs={"class": "form-control", "autocomplete": "family-name"}),
        }


class TokenForm(StyledForm):
    """A new API token."""

    name = forms.CharField(label=_("Name"), max_length=64, help_text=_("What uses it, such as “backup script”"))
    scope = forms.ChoiceField(label=_("May be used for"), choices=TokenScope.choices, initial=TokenScope.FULL.value)
    days = forms.TypedChoiceField(
        label=_("Valid for"),
        coerce=int,
        initial=30,
        choices=[(7, _("7 days")), (30, _("30 days")), (90, _("90 days")), (365, _("1 year"))],
    )

    def save(self, owner: User) -> tuple[ApiToken, str] | None:
        """Make and return (token, its text); None if it is refused, with the message at the name."""
        lifetime = timedelta(days=self.cleaned_data["days"])
        try:
            return tokens.create_token(
                owner, self.cleaned_data["name"], scope=self.cleaned_data["scope"], lifetime=lifetime
            )
        except TokenRejectedError as error:
            self.add_error("name", str(error))
            return None


class FileOrTextForm(forms.Form):
    """A file, or its text, which the preview of an import carries to the import."""

    MAX_BYTES = 2**20

    file = forms.FileField(required=False)
    text = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_BYTES,
        label=_("or its text"),
        widget=forms.Textarea(attrs={"rows": 12, "spellcheck": "false"}),
    )
    digest = forms.CharField(required=False, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        """Return the data, with the text of the file in `text`. Raises ValidationError."""
        data = super().clean() or self.cleaned_data
        if file := data.get("file"):
            if file.size > self.MAX_BYTES:
                self.add_error("file", gettext("A file has at most 1 MiB."))
                return data
            try:
                data["text"] = file.read().decode()
            except UnicodeDecodeError:
                self.add_error("file", gettext("Save the file as UTF-8."))
        if not self.errors and not (data.get("text") or "").strip():
            self.add_error("file", gettext("Choose a file, or paste its text."))
        return data


class UniqueEmailForm(forms.ModelForm[User]):
    """A user form that refuses an e-mail address in use, in any case."""

    def clean_email(self) -> str:
        """Return the normalised address; raise ValidationError if it is in use."""
        email = User.objects.normalize_email(self.cleaned_data["email"])
        if User.objects.filter(email__iexact=email).exclude(pk=self.instance.pk).exists():
            raise ValidationError(gettext("A user with this e-mail address exists already."))
        return email
