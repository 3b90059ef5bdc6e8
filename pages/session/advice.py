"""What to do about a session that ended otherwise than wanted, or that is short of memory, in words."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django_stubs_ext import StrPromise

from resources.amounts.units import fgpu_text, size_text
from sessions.lifecycle import DependencyKind, Kind, Reason, Status
from sessions.models import Session, SessionEvent

RECENT: Final = timedelta(hours=1)  # a killed process is spoken of for this long
KILLED: Final = 137
NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
CRASHED: Final = 139
TEXTS: Final[Mapping[Reason, tuple[StrPromise, StrPromise]]] = {  # title, and what to do
    Reason.TIME_LIMIT: (
        gettext_lazy("Its time limit was reached"),
        gettext_lazy("Launch it again with a longer time limit, and keep intermediate results in a data folder."),
    ),
    Reason.LIFETIME: (
        gettext_lazy("The longest lifetime of your policy was reached"),
        gettext_lazy("Launch it again to go on, and keep intermediate results in a data folder."),
    ),
    Reason.IDLE: (
        gettext_lazy("It was idle"),
        gettext_lazy("Launch it again when you go on. Long work runs best as a batch session, which ends by itself."),
    ),
    Reason.PENDING_TIMEOUT: (
        gettext_lazy("It waited for too long"),
        gettext_lazy(
            "Nothing was free in time. Smaller sessions start sooner: ask for less, or try another resource group."
        ),
    ),
    Reason.DEPENDENCY_FAILED: (
        gettext_lazy("A session before it did not end as it was to"),
        gettext_lazy("Look at the session that it was to start after, and launch both again."),
    ),
    Reason.HOST_LOST: (
        gettext_lazy("Its host was lost"),
        gettext_lazy(
            "Its host did not come back. Data folders are not affected; launch it again to run on another host."
        ),
    ),
    Reason.IMAGE_UNAVAILABLE: (
        gettext_lazy("Its image is not available"),
        gettext_lazy("The image could not be pulled. Check its name, or choose another environment."),
    ),
    Reason.MOUNT_FAILED: (
        gettext_lazy("A data folder could not be mounted"),
        gettext_lazy("Look whether the folder is still there and shared with you, then launch it again."),
    ),
    Reason.GPU_TIME_EXCEEDED: (
        gettext_lazy("It took more of the GPU's time than its share"),
        gettext_lazy(
            "Programs must use the CUDA libraries in the usual way, and may not keep others from the GPU for long."
        ),
    ),
    Reason.SHARED_LIMIT: (
        gettext_lazy("It held most of what all sessions of its host share"),
        gettext_lazy(
            "Look for a program that watches too many files, or opens files, terminals or processes without end."
        ),
    ),
    Reason.HOOK_BYPASSED: (
        gettext_lazy("A process got around the limits of the GPU"),
        gettext_lazy("Programs must use the CUDA libraries in the usual way. Ask for whole GPUs if yours cannot."),
    ),
    Reason.ENFORCEMENT_FAILED: (
        gettext_lazy("Its share of the GPU could not be held"),
        gettext_lazy("Ask for whole GPUs, or choose an environment that is built on glibc."),
    ),
}
GENERAL: Final = (
    gettext_lazy("It could not go on"),
    gettext_lazy("Launch it again. If it happens again, tell an administrator."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAdvice:
    """What happened, and when; what to do; and a launch that does it, as changes to a launch of the same again."""

    title: str
    text: str
    at: datetime | None = None
    is_error: bool = True
    changes: Mapping[str, str] = field(default_factory=dict)
    action: str = ""
    session_id: str = ""

    @property
    def url(self) -> str:
        """The launch page, filled in."""
        return f"{reverse('sessions:launch')}?{urlencode({'again': self.session_id, **self.changes})}"


def advice_for(session: Session, events: Iterable[SessionEvent], now: datetime) -> EndAdvice | None:
    """Return what to do about the session; None where all is well. `owner__policy` is to be fetched with it."""
    if session.status == Status.RUNNING:
        return _about_killed_process(session, events, now)
    if not session.is_final or session.reason in (Reason.USER_REQUEST, Reason.ADMIN_REQUEST):
        return None
    if session.status != Status.ERROR and session.reason == Reason.CONTAINER_EXITED:
        return None
    reason = Reason(session.reason)
    if reason == Reason.OUT_OF_MEMORY:
        return _more_memory(session, _("Out of memory"), session.ended_at)
    if reason == Reason.GPU_LIMIT_EXCEEDED:
        return _more_fgpu(session)
    if reason == Reason.CONTAINER_EXITED:
        return _about_exit(session)
    return _about_reason(session, reason)


def _about_killed_process(session: Session, events: Iterable[SessionEvent], now: datetime) -> EndAdvice | None:
    kills = [event.at for event in events if event.reason == Reason.PROCESS_OUT_OF_MEMORY and now - event.at < RECENT]
    if not kills:
        return None
    return _more_memory(session, _("A process was killed: the session was out of memory"), kills[-1], is_error=False)


def _more_memory(session: Session, title: str, at: datetime | None, *, is_error: bool = True) -> EndAdvice:
    most = session.owner.policy.limits().memory
    more = min(session.memory * 2, most) if most is not None else session.memory * 2
    values = {"memory": size_text(session.memory), "more": size_text(more)}
    if more <= session.memory:
        text = _("It had %(memory)s, as much as your policy allows. Load less data at once, or ask an administrator.")
        return _advice(session, title, text % values, at=at, is_error=is_error)
    text = _("It needed more than its %(memory)s. Launch it again with more, or load less data at once.")
    action = _("Launch again with %(more)s") % values
    return _advice(
        session, title, text % values, at=at, is_error=is_error, changes={"memory": str(more)}, action=action
    )


def _more_fgpu(session: Session) -> EndAdvice:
    if session.gpu_memory:
        asked, size = size_text(session.gpu_memory), size_text(2 * session.gpu_memory)
        text = _("It used more than its %(size)s of GPU memory. Launch it again with more, or use smaller batches.")
        return _advice(
            session,
            _("Over its share of GPU memory"),
            text % {"size": asked},
            changes={"gpu_memory": str(2 * session.gpu_memory)},
            action=_("Launch again with %(more)s of GPU memory") % {"more": size},
        )
    more = fgpu_text(min(session.fgpu * 2, max(session.resource_group.gpu_capacity, session.fgpu)))
    text = _("It used more GPU memory than its %(fgpu)s fGPU hold. Launch it again with more, or use smaller batches.")
    return _advice(
        session,
        _("Over its share of GPU memory"),
        text % {"fgpu": fgpu_text(session.fgpu)},
        changes={"fgpu": more},
        action=_("Launch again with %(more)s fGPU") % {"more": more},
    )


def _about_exit(session: Session) -> EndAdvice:
    texts = {
        NOT_FOUND: _("Its command was not found in the image. Check how it is spelled, and its path."),
        NOT_EXECUTABLE: _("Its command could not be executed. Check the permissions of the file."),
        KILLED: _("Its main process was killed. If it used much memory, launch it again with more."),
        CRASHED: _("Its main process crashed (segmentation fault). The last lines of the log may say where."),
    }
    general = _("Its main process ended with an error. The last lines of the log say more.")
    title = _("Ended with exit code %(code)s") % {"code": session.exit_code}
    return _advice(session, title, texts.get(session.exit_code or 0, general))


def _about_reason(session: Session, reason: Reason) -> EndAdvice:
    title, text = TEXTS.get(reason, GENERAL)
    return _advice(session, str(title), str(text), is_error=session.status == Status.ERROR)


def _advice(
    session: Session,
    title: str,
    text: str,
    *,
    at: datetime | None = None,
    is_error: bool = True,
    changes: Mapping[str, str] | None = None,
    action: str = "",
) -> EndAdvice:
    if session.kind == Kind.BATCH and session.links_of_dependents.filter(kind=DependencyKind.AFTER_OK).exists():
        text = f"{text} {_('Sessions that depend on it do not start.')}"
    return EndAdvice(
        title=title,
        text=text,
        at=at or session.ended_at,
        is_error=is_error,
        changes=changes or {},
        action=action or _("Launch again"),
        session_id=session.pk,
    )
