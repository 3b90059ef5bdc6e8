"""The people of a cluster: they use its API as clients do that try again, and remember what they were promised."""

import random
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

import requests

from accounts.models import ApiToken
from resources.amounts.units import MIB
from resources.models import Image, ResourceGroup
from tests.factories import make_policy, make_user

RETRY_S: Final = 90.0  # of a client that tries again
TIMEOUT_S: Final = 10.0
NOTEBOOK: Final = ""
BATCH: Final = "sleep {seconds}; echo done"


@dataclass
class Promises:
    """What people were told, and may hold the platform to."""

    accepted: dict[str, str] = field(default_factory=dict)  # id: command, "" of a notebook
    ended: dict[str, float] = field(default_factory=dict)  # id: Unix time when its owner asked for its end
    limits: dict[str, int] = field(default_factory=dict)  # id: time limit in seconds
    unanswered: int = 0  # requests that were given up


class People:
    """Several users with tokens of their own."""

    def __init__(self, urls: Sequence[str], group: ResourceGroup, image: Image, *, count: int = 4) -> None:
        self.promises = Promises()
        self._urls = urls
        self._group = group
        self._image = image
        policy = make_policy(allow_sudo=True)
        users = [make_user(policy=policy) for _ in range(count)]
        self.tokens = {user.pk: ApiToken.objects.issue(user)[1] for user in users}
        self._token_of: dict[str, str] = {}
        self._lock = threading.Lock()

    def of_group(self, group: ResourceGroup) -> "People":
        """Return the same people, who use another group from now on."""
        others = copy(self)
        others._group = group
        return others

    def submit(
        self,
        chance: random.Random,
        command: str = NOTEBOOK,
        *,
        image: Image | None = None,
        time_limit: int = 0,
        fgpu: str = "",
        cluster: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Submit one session, or a cluster; return its id, or nothing where the platform did not respond for long."""
        body: dict[str, Any] = {
            "image": (image or self._image).reference,
            "resource_group": self._group.name,
            "cpu": 1,
            "memory": 64 * MIB,
            "shared_memory": 16 * MIB,
            "fgpu": fgpu or chance.choice(["0", "0.5", "1"]),
        }
        body |= ({"command": command} if command else {}) | ({"time_limit": time_limit} if time_limit else {})
        body |= {"cluster": dict(cluster)} if cluster else {}
        token = chance.choice([*self.tokens.values()])
        answer = self._post(chance, token, "/sessions/", body)
        ids = [str(each["id"]) for each in answer or ()]
        with self._lock:
            for session_id in ids:
                self.promises.accepted[session_id] = command
                self._token_of[session_id] = token
                if time_limit:
                    self.promises.limits[session_id] = time_limit
        return ids

    def end(self, chance: random.Random, session_id: str, owner_id: int | None = None) -> None:
        """Ask for the end of a session. `owner_id`: of one that may have begun by a request that was given up."""
        self.promises.ended[session_id] = time.time()
        token = self._token_of[session_id] if owner_id is None else self.tokens[owner_id]
        self._post(chance, token, f"/sessions/{session_id}/terminate/", {})

    def act(self, chance: random.Random, session_id: str, verb: str, body: dict[str, Any] | None = None) -> None:
        """Park, resume, resize ... a session; what is refused is no error."""
        self._post(chance, self._token_of[session_id], f"/sessions/{session_id}/{verb}/", body or {})

    def _post(self, chance: random.Random, token: str, path: str, body: dict[str, Any]) -> Any:
        """Return the answer; the same request is sent again, to either web process, until there is one."""
        headers = {"Authorization": f"Token {token}", "Idempotency-Key": str(uuid.UUID(int=chance.getrandbits(128)))}
        deadline = time.monotonic() + RETRY_S
        while time.monotonic() < deadline:
            url = f"{chance.choice(self._urls)}/api/v1{path}"
            try:
                answer = requests.post(url, json=body, headers=headers, timeout=TIMEOUT_S)
            except requests.RequestException:
                time.sleep(0.2)
                continue
            if answer.ok:
                return answer.json()
            if answer.status_code < 500 and answer.status_code not in (408, 409, 425, 429):
                return None
            time.sleep(0.2)
        self.promises.unanswered += 1
        return None
