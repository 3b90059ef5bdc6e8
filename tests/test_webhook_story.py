"""A webhook is told of a session from its launch to its end, on the whole platform: by hosts, triggers and Celery."""

import json

import httpx
import pytest
from gpuplatform_client import Client, LaunchSpec

from tests.guide import USER
from tests.platform import Platform
from tests.wait import SECONDS, until
from webhooks.signatures import signature
from webhooks.tests.receivers import receiving

pytestmark = [pytest.mark.long, pytest.mark.docker]


def test_a_receiver_is_notified_of_all_of_a_session(platform: Platform) -> None:
    with receiving() as receiver, Client(platform.url) as client:
        headers = {"Authorization": f"Token {client.login(USER, platform.passwords[USER]).token}"}
        types = {"session.running", "session.error"}
        asked = {"url": receiver.url, "event_types": sorted(types)}
        url = f"{platform.url}/api/v1/webhooks/"
        made = httpx.post(url, json=asked, headers=headers, timeout=SECONDS).json()
        image = next(image for image in client.images() if image.environment == "Python")
        [session] = client.launch(LaunchSpec(image=image.reference, cpu=1, memory="1g", command="exit 3"))
        until(lambda: {json.loads(body)["type"] for _, body in receiver.received} == types)
        httpx.delete(f"{url}{made['id']}/", headers=headers, timeout=SECONDS).raise_for_status()
    told = {}  # by type: messages may come twice, and not in their order
    for received, body in receiver.received:
        wanted = signature(made["secret"], received["webhook-id"], int(received["webhook-timestamp"]), body)
        assert received["webhook-signature"] == wanted
        told[json.loads(body)["type"]] = json.loads(body)
    ended = told["session.error"]["data"]["session"]
    assert (ended["id"], ended["status"], ended["exit_code"]) == (session.id, "ERROR", 3)
