"""The kinds of documents: each is validated by the serializer of the API, and made and estimated by the services."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Final

from django.db import transaction
from drf_spectacular.utils import extend_schema_field
from rest_framework.exceptions import ValidationError
from rest_framework.serializers import Serializer

from accounts.models import User
from arrays import services as arrays
from arrays.serializers import ArrayRequestSerializer
from deployments import services as deployments
from deployments.models import Deployment
from deployments.replicas.launching import launch_request
from deployments.rest.bodies import NewDeploymentBody
from deployments.rest.tokens import refusals
from folders.api import holder_for, root_called
from folders.errors import FolderError, FolderRejectedError
from folders.models import Folder
from folders.serializers import NewFolderSerializer
from folders.sharing import folders
from scheduler.advice.estimate import Estimate, estimate
from sessions.api import by_request_field
from sessions.errors import RejectedError
from sessions.launching import services as sessions
from sessions.launching.requests import LaunchRequest
from sessions.launching.serializers import (
    ClusterQuery,
    DependenciesField,
    LaunchRequestSerializer,
    dependencies_schema,
)
from sessions.launching.validation import MAX_COUNT
from sessions.lifecycle import DependencyKind
from specs.documents import KIND
from specs.launch_templates import services as templates
from specs.launch_templates.bodies import TemplateBody, parameter_of
from specs.launch_templates.filling import filled, names_at, names_in
from specs.launch_templates.parameters import TemplateParameter
from specs.launch_templates.services import DOCUMENT
from specs.models import LaunchTemplate
from specs.problems import messages, with_allowed


class SpecRequest(ABC):
    """What a document asks for. All methods raise ValidationError by fields of the document."""

    serializer: ClassVar[type[Serializer[Any]]]

    def __init__(self, owner: User, fields: Mapping[str, Any]) -> None:
        """Take the fields as they are written."""
        self._owner = owner
        self._body: Any = self.serializer(data=dict(fields), context={"request": SimpleNamespace(user=owner)})

    def validate(self) -> None:
        """Validate the fields."""
        self._body.is_valid(raise_exception=True)

    def prepare(self) -> None:
        """Validate the fields, and store what other documents may name, or what launches nothing by itself."""
        self.validate()

    @abstractmethod
    def launched_as(self) -> LaunchRequest | None:
        """Return what is launched; None: nothing."""

    @abstractmethod
    def estimate(self) -> Estimate | None:
        """Return when that would start. Called before any `launch`, whose sessions the scheduler must not see yet."""

    @abstractmethod
    def launch(self) -> list[str]:
        """Launch it, and return the ids of what there is then."""


class FolderSpecRequest(SpecRequest):
    """A data folder."""

    serializer = NewFolderSerializer
    _made: Folder

    def prepare(self) -> None:
        """Create the folder; its directory is made once that is committed."""
        super().prepare()
        asked = self._body.validated_data
        holder, root = holder_for(self._owner, asked.get("project")), root_called(asked.get("root"))
        try:
            self._made = folders.create_row(holder, asked["name"], root)
        except FolderError as error:
            errors = error.errors if isinstance(error, FolderRejectedError) else {"detail": str(error)}
            raise ValidationError(errors) from error
        transaction.on_commit(partial(folders.make_directory, self._made))

    def launched_as(self) -> None:
        """Return None."""

    def estimate(self) -> None:
        """Return None: it is there at once."""

    def launch(self) -> list[str]:
        """Return the folder's id."""
        return [self._made.pk]


@extend_schema_field(dependencies_schema("session", "document"))
class SpecDependenciesField(DependenciesField):
    """What a session waits for; names of other documents are taken out before."""

    def __init__(self) -> None:
        """Say what may be written."""
        text = (
            "What it waits for: names of other documents, or ids of sessions and arrays. Each may have a kind: it "
            "starts after that has started (after), succeeded (after_ok), failed (after_not_ok) or ended (after_any)"
        )
        super().__init__(required=False, help_text=text)


class SessionSpecSerializer(LaunchRequestSerializer):
    """A request for sessions, which may wait for those of other documents."""

    depends_on = SpecDependenciesField()


class SessionSpecRequest(SpecRequest):
    """Sessions of one shape."""

    serializer: ClassVar[type[LaunchRequestSerializer]] = SessionSpecSerializer

    def __init__(self, owner: User, fields: Mapping[str, Any]) -> None:
        """Take the fields as they are written."""
        super().__init__(owner, fields)
        self.after: dict[Any, DependencyKind] = {}  # what it waits for besides

    def launched_as(self) -> LaunchRequest:
        """Return the request."""
        asked: LaunchRequest = self._body.launch_request()
        return replace(asked, depends_on={**asked.depends_on, **self.after})

    def estimate(self) -> Estimate | None:
        """Return when all would have started."""
        try:
            return estimate(self._owner, self.launched_as())
        except RejectedError as error:
            raise self._refusal(error) from error

    def launch(self) -> list[str]:
        """Queue the sessions and return their ids."""
        try:
            return [session.pk for session in sessions.submit(self._owner, self.launched_as())]
        except RejectedError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: RejectedError) -> ValidationError:
        return ValidationError(by_request_field(error.errors, self._body.initial_data))


class ClusterSpecSerializer(SessionSpecSerializer):
    """A request for sessions of several containers."""

    cluster = ClusterQuery(help_text="Several containers as one session, started and ended together")


class ClusterSpecRequest(SessionSpecRequest):
    """Clusters of one shape."""

    serializer = ClusterSpecSerializer


class ArraySpecSerializer(ArrayRequestSerializer):
    """A request for an array, which may wait for other documents."""

    depends_on = SpecDependenciesField()


class ArraySpecRequest(SessionSpecRequest):
    """An array, whose tasks get sessions as there is room."""

    serializer = ArraySpecSerializer

    def launched_as(self) -> LaunchRequest:
        """Return the request for those of its sessions that may wait at once, or for one."""
        launch = super().launched_as()
        at_once = arrays.at_once(self._owner, replace(self._body.array_request(), launch=launch))
        return at_once or replace(launch, name="")

    def estimate(self) -> Estimate | None:
        """Return when the first of its sessions would have started; None where others leave no room to ask that."""
        return super().estimate() if arrays.room_of(self._owner, super().launched_as().project) > 0 else None

    def launch(self) -> list[str]:
        """Submit the array and return its id."""
        asked, launch = self._body.array_request(), super().launched_as()
        before = [f"{kind}:{target.pk}" for target, kind in launch.depends_on.items()]
        body = {**asked.body, "depends_on": before}  # by ids, as each batch of sessions reads it
        try:
            return [arrays.submit(self._owner, replace(asked, launch=launch, body=body)).pk]
        except RejectedError as error:
            raise self._refusal(error) from error


class DeploymentSpecRequest(SpecRequest):
    """A deployment with its first revision."""

    serializer = NewDeploymentBody
    _made: Deployment

    def prepare(self) -> None:
        """Create the deployment; its replicas are launched once that is committed."""
        super().prepare()
        asked = self._body.deployment_request(self._owner)
        with refusals(asked.revision):
            self._made = deployments.create(self._owner, asked)

    def launched_as(self) -> LaunchRequest | None:
        """Return the request for its replicas."""
        if self._made.revision is None or not self._made.replicas:
            return None
        return replace(launch_request(self._made, self._made.revision), count=min(self._made.replicas, MAX_COUNT))

    def estimate(self) -> Estimate | None:
        """Return when all replicas would have started; None where more are wanted than may wait at once."""
        asked = self.launched_as()
        try:
            return estimate(self._owner, asked) if asked else None
        except RejectedError:
            return None

    def launch(self) -> list[str]:
        """Return the deployment's id."""
        return [self._made.pk]


class TemplateSpecRequest(SpecRequest):
    """A launch template, or a version of the one that has the same name."""

    serializer = TemplateBody
    _saved: LaunchTemplate

    def prepare(self) -> None:
        """Save the template."""
        self.save(is_known=True)

    def save(self, target: LaunchTemplate | None = None, *, is_known: bool = False) -> LaunchTemplate:
        """Save a new template, or a version of `target`, or where `is_known` of the one that has the same name."""
        super().prepare()
        body = self._body.validated_data
        self._check(body["launch"], [parameter_of(each) for each in body["parameters"]])
        self._saved = templates.save(self._owner, body, templates.find(self._owner, body) if is_known else target)
        return self._saved

    def launched_as(self) -> None:
        """Return None."""

    def estimate(self) -> None:
        """Return None: nothing is launched."""

    def launch(self) -> list[str]:
        """Return the template's id."""
        return [self._saved.pk]

    def _check(self, launch: Mapping[str, Any], parameters: Sequence[TemplateParameter]) -> None:
        """Validate what would be launched with the defaults, as far as these say it."""
        defaults = {each.name: each.default for each in parameters}
        fields = {name: value for name, value in launch.items() if name != KIND}
        asked = KINDS[launch[KIND]](self._owner, filled(fields, defaults))
        try:
            asked.validate()
        except ValidationError as error:
            unsaid = {name for name, value in defaults.items() if value is None}
            found = {
                ".".join(map(str, ("launch", *place))): [with_allowed(asked.serializer(), place, text)]
                for place, text in messages(error.detail)
                if not unsaid & set(names_at(launch, place) if place else names_in(launch))
            }
            if found:
                raise ValidationError(found) from error


# In the order in which documents are prepared: the later ones may name what the earlier ones make.
KINDS: Final[Mapping[str, type[SpecRequest]]] = {
    "folder": FolderSpecRequest,
    "session": SessionSpecRequest,
    "cluster": ClusterSpecRequest,
    "array": ArraySpecRequest,
    "deployment": DeploymentSpecRequest,
    DOCUMENT: TemplateSpecRequest,
}
