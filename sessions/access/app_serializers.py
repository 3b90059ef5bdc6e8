"""The API's representation of a session's app: read-only, part of the session's own."""

from rest_framework import serializers

from restapi.fields import ShownSerializer
from sessions.access import app_addresses
from sessions.models import Endpoint, EndpointState


class EndpointSerializer(ShownSerializer[Endpoint]):
    """An app of a session. It can be used while its state is READY; one that is CLOSED may be opened."""

    name = serializers.CharField(source="app", read_only=True, help_text="Of the image's app, or p8080 for a port")
    url = serializers.SerializerMethodField(
        help_text="Where browsers open it; empty where it needs a port and has none yet"
    )
    state = serializers.ChoiceField(choices=[state.value for state in EndpointState], read_only=True)
    detail = serializers.CharField(read_only=True, help_text="What it is doing, or why it failed")
    public = serializers.BooleanField(source="is_public", read_only=True)
    port = serializers.IntegerField(source="listen_port", read_only=True, allow_null=True)
    port_url = serializers.SerializerMethodField(help_text="Where the port that it has to itself is; empty without one")

    class Meta:
        model = Endpoint
        fields: tuple[str, ...] = (
            "name",
            "title",
            "url",
            "state",
            "detail",
            "public",
            "public_until",
            "port",
            "port_url",
        )

    def get_url(self, endpoint: Endpoint) -> str:
        """Return the URL of the app's first page; see `app_addresses.first_page`."""
        return app_addresses.first_page(endpoint)

    def get_port_url(self, endpoint: Endpoint) -> str:
        """Return the URL of the first page at the endpoint's own port; "" without one."""
        return app_addresses.first_page_at_port(endpoint)
