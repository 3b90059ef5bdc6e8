"""Serializers of imports and import credentials."""

from typing import Any

from rest_framework import serializers

from accounts.serializers import StrictSerializer
from imports.addresses import MAX_ADDRESS_LENGTH, MAX_NAME_LENGTH, MAX_PATH_LENGTH, MAX_REF_LENGTH
from imports.models import NAME_LENGTH, CredentialKind, Import, ImportCredential
from imports.requests import LaunchOptions
from resources.amounts.fields import FgpuField, SizeField
from restapi.fields import ShownSerializer
from sessions.launching.requests import LaunchRequest
from sessions.launching.serializers import LaunchRequestSerializer, MountQuery
from sessions.models import Session


class DevcontainerSerializer(serializers.Serializer[Any]):
    """What a devcontainer.json asks for."""

    cpus = serializers.IntegerField(required=False)
    memory = serializers.IntegerField(required=False, help_text="In bytes")
    gpu = serializers.CharField(required=False, help_text='true, false or "optional"')
    image = serializers.CharField(required=False)


class FindingsSerializer(serializers.Serializer[Any]):
    """What was found at an address; what was not found is left out."""

    branch = serializers.CharField(required=False, help_text="Or tag")
    commit = serializers.CharField(required=False)
    files = serializers.IntegerField(required=False)
    bytes = serializers.IntegerField(required=False, allow_null=True, help_text="null: a look does not know it")
    submodules = serializers.IntegerField(required=False)
    present = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="Files that say how it runs"
    )
    notebooks = serializers.ListField(child=serializers.CharField(), required=False, help_text="The first 50")
    more_notebooks = serializers.IntegerField(required=False)
    frameworks = serializers.DictField(child=serializers.CharField(), required=False, help_text="And their versions")
    devcontainer = DevcontainerSerializer(required=False)
    notes = serializers.ListField(child=serializers.CharField(), required=False, help_text="What was left out, and why")
    path = serializers.CharField(required=False, help_text="What the address opens in it")


class ImportSerializer(ShownSerializer[Import]):
    """An import, how far it is, and what was found."""

    owner = serializers.EmailField(source="owner.email")
    credential = serializers.IntegerField(source="credential_id", allow_null=True)
    folder = serializers.CharField(source="folder_id", allow_null=True)
    session = serializers.CharField(source="session_id", allow_null=True, help_text="In whose container it is fetched")
    tree = serializers.CharField(help_text="Where it is in a session; the mount of a folder may be elsewhere")
    found = FindingsSerializer()

    class Meta:
        model = Import
        fields = (
            *("id", "owner", "address", "kind", "url", "ref", "path", "credential", "target", "folder", "directory"),
            *("session", "tree", "state", "progress", "fetched_bytes", "found", "problem", "created_at", "ended_at"),
        )


class NewImportSerializer(StrictSerializer):
    """An address, and where what is there goes: a folder, a new one, a running session, or nowhere, which is a look."""

    address = serializers.CharField(max_length=MAX_ADDRESS_LENGTH)
    ref = serializers.CharField(
        required=False, allow_blank=True, max_length=MAX_REF_LENGTH, help_text="Branch, tag or commit"
    )
    path = serializers.CharField(
        required=False, allow_blank=True, max_length=MAX_PATH_LENGTH, help_text="What is opened in it"
    )
    credential = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=2**31)
    folder = serializers.CharField(required=False, max_length=64, help_text="Id of a folder, or the name of one's own")
    folder_name = serializers.CharField(required=False, max_length=64, help_text="Of a new folder")
    session = serializers.CharField(required=False, max_length=16, help_text="Id of a running session")
    directory = serializers.CharField(
        required=False, max_length=MAX_NAME_LENGTH, help_text="There; as the repository is called when left out"
    )
    whole_history = serializers.BooleanField(default=False, help_text="And not the last commit alone")
    installs = serializers.BooleanField(default=True, help_text="In a session: packages that it names, too")
    project = serializers.CharField(
        required=False, allow_null=True, max_length=64, help_text="Whose limits count for the session that fetches"
    )
    resource_group = serializers.CharField(required=False, max_length=64, help_text="In which it is fetched")


class ImportLaunchSerializer(LaunchRequestSerializer):
    """A launch with the tree of an import; `mounts` are its folder when left out."""

    installs = serializers.BooleanField(default=True, help_text="Packages that it names, too")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a launch, and whether packages are installed."""
        return {**super().validate(attrs), "installs": attrs["installs"]}

    def launch_request(self) -> LaunchRequest:
        """Return the validated request."""
        return LaunchRequest(**{name: value for name, value in self.validated_data.items() if name != "installs"})


class LaunchedSessionSerializer(ShownSerializer[Session]):
    """A session that was launched."""

    class Meta:
        model = Session
        fields = ("id", "name", "status")


class LaunchOptionsSerializer(serializers.Serializer[LaunchOptions]):
    """What an import that is done proposes for a session; null and "" where it proposes nothing."""

    image = serializers.CharField(source="image.reference", default=None, allow_null=True)
    environment = serializers.CharField(source="image.environment", default=None, allow_null=True)
    version = serializers.CharField(source="image.version", default=None, allow_null=True)
    cpu = serializers.IntegerField(allow_null=True)
    memory = SizeField(allow_null=True)
    fgpu = FgpuField(allow_null=True)
    mounts = MountQuery(many=True)
    app = serializers.CharField(help_text="jupyterlab or vscode")
    tree = serializers.CharField(help_text="Where it is in the session")
    file = serializers.CharField(help_text="To open, below `tree`")
    reasons = serializers.DictField(child=serializers.CharField(), help_text="By field")


class ImportCredentialSerializer(ShownSerializer[ImportCredential]):
    """A credential, without its secret."""

    class Meta:
        model = ImportCredential
        fields = ("id", "name", "host", "kind", "username", "public_key", "created_at", "last_used_at")


class NewImportCredentialSerializer(StrictSerializer):
    """A token, or an SSH key, which is made where none is given."""

    name = serializers.CharField(max_length=NAME_LENGTH)
    host = serializers.CharField(max_length=253, help_text="To which alone it is sent, such as github.com")
    kind = serializers.ChoiceField(choices=CredentialKind.choices)
    token = serializers.CharField(required=False, max_length=2000)
    username = serializers.CharField(required=False, allow_blank=True, max_length=NAME_LENGTH)
    private_key = serializers.CharField(required=False, max_length=20_000)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the fields; raise ValidationError for those of the other kind."""
        other = ("private_key",) if attrs["kind"] == CredentialKind.TOKEN else ("token", "username")
        if wrong := [name for name in other if attrs.get(name)]:
            raise serializers.ValidationError(
                dict.fromkeys(wrong, "This does not belong to a credential of this kind.")
            )
        return attrs
