"""The form of the wizard: a launch, and where it is to run as an array, its tasks."""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final
from zlib import crc32

from django import forms
from django.conf import settings
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from arrays import services, spaces
from arrays.models import Array, text_of
from arrays.serializers import OF_THE_ARRAY
from arrays.services import ArrayRequest
from arrays.spaces import TaskSpace
from arrays.typed_spaces import space_of
from pages.launch.forms import LaunchForm
from pages.launch.gallery import origins
from pages.launch.steps import ARRAY
from resources.amounts.fields import MAX_INTEGER
from sessions.errors import RejectedError
from sessions.launching.requests import LaunchRequest

MAX_TYPED: Final = 100_000  # characters of the tasks, beside what else a draft has
SHOWN: Final = 3  # tasks of a preview
SHOWN_LENGTH: Final = 120
KINDS: Final = (
    ("", gettext_lazy("no, once")),
    ("indices", gettext_lazy("an index each")),
    ("grid", gettext_lazy("each value with each other (grid)")),
    ("random", gettext_lazy("random values")),
    ("list", gettext_lazy("a list (CSV)")),
)
AT_FIELD: Final = {"tasks": "array_tasks", "cluster": "cluster_size"}
WHOLE: Final = {"invalid": gettext_lazy("Write a whole number.")}


class WizardForm(LaunchForm):
    """A launch request, or with `array_kind` one for an array, which `submit_array` submits."""

    array_kind = forms.ChoiceField(required=False, choices=KINDS)
    array_tasks = forms.CharField(required=False, max_length=MAX_TYPED, strip=False)
    array_count = forms.IntegerField(required=False, min_value=1, max_value=MAX_INTEGER, error_messages=WHOLE)
    array_seed = forms.IntegerField(required=False, min_value=0, max_value=MAX_INTEGER, error_messages=WHOLE)
    array_max_parallel = forms.IntegerField(required=False, min_value=1, max_value=MAX_INTEGER, error_messages=WHOLE)
    array_retries = forms.IntegerField(
        required=False, min_value=0, max_value=services.MAX_RETRIES, error_messages=WHOLE
    )
    space: TaskSpace | None = None
    array: ArrayRequest | None = None  # what is asked for, unless something is wrong

    def clean(self) -> dict[str, Any]:
        """Return the cleaned data; of an array all that is wrong is shown at once, as that of a launch is."""
        cleaned = super().clean()
        if cleaned.get("array_kind"):
            if cleaned.get("from_import"):  # which installs its packages in one session
                self.add_error("from_import", _("An array cannot be launched with an import: untick it, or the array."))
            self._read_space()
            if self.space and not self.errors:
                self.array = self._array_request(self.space)
                self.show(services.problems(self.owner, self.array))
        return cleaned

    def _read_space(self) -> None:
        key = self.data.get("form_key", "")
        seed = crc32(key.encode()) if key else None  # so that what a page shows of a draw is what it submits
        if self.cleaned_data.get("array_kind") == "random" and not self.cleaned_data.get("array_count"):
            if "array_count" not in self.errors:
                self.add_error("array_count", _("Say how many tasks."))
            return
        try:
            self.space = spaces.read(self._asked_space(seed), settings.COMPUTE_MAX_ARRAY_TASKS)
        except spaces.SpaceError as error:
            if "array_tasks" not in self.errors:
                self.add_error("array_tasks", str(error))

    def _asked_space(self, seed: int | None = None) -> Any:
        """Return the space as it was typed, drawn with this seed where none was. Raises SpaceError."""
        asked = self.cleaned_data
        typed = asked.get("array_seed")
        text = asked.get("array_tasks", "")
        return space_of(asked["array_kind"], text, asked.get("array_count"), seed if typed is None else typed)

    def _array_request(self, space: TaskSpace) -> ArrayRequest:
        launch = self.launch_request()
        body = {name: value for name, value in origins.of_request(launch)[1].items() if name not in OF_THE_ARRAY}
        if launch.not_before:
            body["not_before"] = launch.not_before
        if launch.depends_on:
            body["depends_on"] = [f"{kind}:{target.pk}" for target, kind in launch.depends_on.items()]
        retries = self.cleaned_data.get("array_retries") or 0
        most = self.cleaned_data.get("array_max_parallel")
        return ArrayRequest(launch=launch, body=body, space=space, max_parallel=most, retries=retries)

    @property
    def order(self) -> LaunchRequest | None:
        """The request of which an estimate is asked: of an array, for what may wait at once; None for nothing."""
        return services.at_once(self.owner, self.array) if self.array else self.launch_request()

    def document(self) -> tuple[str, dict[str, Any]]:
        """Return the kind and fields of a spec file that asks for the same."""
        kind, fields = origins.of_request(self.launch_request())
        if self.array is None:
            return kind, fields
        tasks = {"tasks": self._asked_space(), "max_parallel": self.array.max_parallel, "retries": self.array.retries}
        return "array", fields | {name: value for name, value in tasks.items() if value}

    def submit_array(self) -> Array | None:
        """Submit and return the array; None if there is none, or it is rejected, with messages at the fields."""
        try:
            return services.submit(self.owner, self.array) if self.array else None
        except RejectedError as error:
            self.show(error.errors)
            return None

    def show(self, errors: Mapping[str, str]) -> None:
        """Show each message at its field."""
        super().show({AT_FIELD.get(name, name): text for name, text in errors.items()})

    @property
    def tasks_at_once(self) -> int | None:
        """How many tasks may run at once; None: any number."""
        return self.cleaned_data.get("array_max_parallel") or (self.space.max_parallel if self.space else None)

    @property
    def first_tasks(self) -> list[str]:
        """The first tasks in words: their parameters, or their indices."""
        first = islice(self.space.tasks.items(), SHOWN) if self.space else ()
        return [_words(index, parameters) for index, parameters in first]

    @property
    def array_is_open(self) -> bool:
        """True if an array is asked for, or something of it is wrong."""
        return any(self[name].value() for name in ARRAY)

    @property
    def advanced_is_open(self) -> bool:
        """True if a field under "Advanced" has a value."""
        return super().advanced_is_open or self.array_is_open


def _words(index: int, parameters: Mapping[str, Any]) -> str:
    text = " ".join(f"{name}={text_of(value)}" for name, value in parameters.items()) or str(index)
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}…"
