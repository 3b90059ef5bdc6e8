"""Sizes of sessions, and resizes as they are stored until their hosts have applied them."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.utils.dateparse import parse_datetime

from resources.amounts.units import amount_text, listing
from sessions.models import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSize:
    """What a session holds of its host: cores, bytes of memory, milli-fGPU."""

    cpu: int
    memory: int
    fgpu: int

    @classmethod
    def of(cls, session: Session) -> "SessionSize":
        """Return what the session holds now."""
        return cls(cpu=session.cpu, memory=session.memory, fgpu=session.fgpu)

    def joined(self, other: "SessionSize") -> "SessionSize":
        """Return the greater of each amount."""
        return SessionSize(
            cpu=max(self.cpu, other.cpu), memory=max(self.memory, other.memory), fgpu=max(self.fgpu, other.fgpu)
        )

    def __str__(self) -> str:
        return listing([amount_text(name, amount) for name, amount in asdict(self).items() if amount])


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResize:
    """A resize that its host has not applied yet."""

    id: str
    at: datetime
    before: SessionSize
    target: SessionSize
    gpu_memory: int = 0  # bytes of the target's share, of a session that asked for GPU memory

    def as_json(self) -> dict[str, Any]:
        """Return the value of `Session.resize`; the database reads it too (`migrations/0038_gpu_memory.py`).

        GPU memory stands beside the amounts, as the version before, which hosts may still run, takes no others.
        """
        memory = {"gpu_memory": self.gpu_memory} if self.gpu_memory else {}
        amounts = {"from": asdict(self.before), "to": asdict(self.target)}
        return {"id": self.id, "at": self.at.isoformat(), **amounts, **memory}

    @classmethod
    def of(cls, session: Session) -> "StoredResize | None":
        """Return the resize that the session waits for; None without one."""
        value: Any = session.resize
        if value is None:
            return None
        at = parse_datetime(value["at"])
        assert at is not None  # written by `as_json`
        before, target = SessionSize(**value["from"]), SessionSize(**value["to"])
        return cls(id=value["id"], at=at, before=before, target=target, gpu_memory=value.get("gpu_memory", 0))

    @classmethod
    def of_whole(cls, session: Session) -> "StoredResize | None":
        """Return that of the session, or of one of the members for which it stands."""
        return next(filter(None, map(cls.of, session.stands_for)), None)
