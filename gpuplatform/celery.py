"""The Celery application, its default queue and periodic tasks, and what its log lines are about."""

import inspect
import os
import sys
from collections.abc import Sequence
from typing import Any

from celery import Celery
from celery.signals import (
    beat_init,
    before_task_publish,
    task_postrun,
    task_prerun,
    worker_init,
    worker_ready,
    worker_shutting_down,
)
from django.core.management.base import BaseCommand, SystemCheckError
from kombu.transport.redis import Transport as RedisTransport

from gpuplatform.ending import end_in_time
from operations.logs import lines as log_lines

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpuplatform.settings")
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")  # they load all pages, and what they find is not looked at

# Each worker asks Redis for its next message, for so many seconds; its end waits for the answer.
RedisTransport.brpop_timeout = 3

app = Celery("gpuplatform")
app.config_from_object("django.conf:settings", namespace="CELERY")
# Hosts may send to the scheduler's queue, whose tasks take no arguments. Those of hosts are unknown to it: the command
# of the host worker imports them.
app.autodiscover_tasks(
    [
        "arrays",
        "deployments",
        "endpoints",
        "folders",
        "gpuplatform",
        "hostaccess",
        "imports",
        "notifications",
        "scheduler",
        "sessions",
        "webhooks",
    ]
)
app.conf.task_default_queue = "scheduler"
app.conf.beat_schedule = {
    # Commits request passes; this one covers lost messages.
    "run_pass": {"task": "scheduler.tasks.run_pass", "schedule": 10.0, "options": {"expires": 10}},
    "provision": {"task": "scheduler.tasks.provision", "schedule": 10.0, "options": {"expires": 10}},
    "enforce_deadlines": {"task": "sessions.tasks.enforce_deadlines", "schedule": 5.0, "options": {"expires": 5}},
    # What users have ended ends some seconds later, and holds its GPU until then: one small query.
    "end_requested": {"task": "sessions.tasks.end_requested", "schedule": 1.0, "options": {"expires": 1}},
    "enforce_idle_rules": {"task": "sessions.tasks.enforce_idle_rules", "schedule": 30.0, "options": {"expires": 30}},
    "sum_usage": {"task": "sessions.tasks.sum_usage", "schedule": 600.0, "options": {"expires": 600}},
    "announce_ends": {"task": "notifications.tasks.announce_ends", "schedule": 5.0, "options": {"expires": 5}},
    "deliver_mail": {"task": "notifications.tasks.deliver_mail", "schedule": 30.0, "options": {"expires": 30}},
    # Events write messages by triggers, which wake nobody; so this looks often, and is one small query.
    "deliver_webhooks": {"task": "webhooks.tasks.deliver", "schedule": 2.0, "options": {"expires": 2}},
    "delete_expired": {"task": "folders.tasks.delete_expired", "schedule": 60.0, "options": {"expires": 60}},
    "back_up": {"task": "gpuplatform.tasks.back_up_if_due", "schedule": 1800.0, "options": {"expires": 600}},
    "remove_old": {"task": "gpuplatform.tasks.remove_old", "schedule": 3600.0, "options": {"expires": 600}},
    "hold_redis_users": {"task": "hostaccess.tasks.hold_redis_users", "schedule": 10.0, "options": {"expires": 10}},
    # Changes ask for it; this one covers lost messages, and what comes with time: drains, and pauses after failures.
    "reconcile_deployments": {"task": "deployments.tasks.reconcile", "schedule": 2.0, "options": {"expires": 2}},
    "scale_deployments": {"task": "deployments.tasks.scale", "schedule": 2.0, "options": {"expires": 2}},
    # Ends of tasks ask for it; this one covers lost messages, starts, and pauses before a task is tried again.
    "advance_arrays": {"task": "arrays.tasks.advance", "schedule": 2.0, "options": {"expires": 2}},
    "advance_imports": {"task": "imports.tasks.advance", "schedule": 1.0, "options": {"expires": 1}},
    "end_access": {"task": "endpoints.tasks.enforce_deadlines", "schedule": 5.0, "options": {"expires": 5}},
}


@before_task_publish.connect
def _send_request_id(headers: dict[str, Any] | None = None, **_kwargs: Any) -> None:
    """Send the id of the request along, by which the log lines of its tasks are found."""
    context = log_lines.current()
    if headers is not None and context and "request_id" in context.fields:
        headers["request_id"] = context.fields["request_id"]


@task_prerun.connect
def _begin_log(task_id: str, task: Any, args: Sequence[Any], **_kwargs: Any) -> None:
    """Name the task in its log lines, with the request that sent it and the session that it is for."""
    context = log_lines.begin(task=task.name, task_id=task_id)
    if request_id := getattr(task.request, "request_id", None):
        context.fields["request_id"] = request_id
    names = [name for name in inspect.signature(task.run).parameters if name != "runtime"]  # which no message has
    if args and names[:1] == ["session_id"]:
        context.fields["session_id"] = str(args[0])


@task_postrun.connect
def _end_log(**_kwargs: Any) -> None:
    log_lines.end()


@worker_init.connect
@beat_init.connect
def _require_known_database(**_kwargs: Any) -> None:
    from resources.versions import VERSION_TAG  # Django is set up by now

    try:
        BaseCommand().check(tags=(VERSION_TAG,))
    except SystemCheckError as error:
        sys.exit(str(error))


@worker_ready.connect
def _keep_what_tasks_cannot(sender: Any, **_kwargs: Any) -> None:
    """Let it be known that a scheduler's worker runs, and end what its tasks might wait for, by threads.

    Workers of hosts are known by their own heartbeats.
    """
    from hostaccess import connections  # Django is set up by now
    from resources import heartbeats

    if heartbeats.HeartbeatName.SCHEDULER in sender.app.amqp.queues.consume_from:
        heartbeats.keep(heartbeats.HeartbeatName.SCHEDULER)
        connections.keep()


@worker_shutting_down.connect
def _end_in_time(**_kwargs: Any) -> None:
    """Bound Celery's warm shutdown, which waits for all tasks: a stop waits for the engine, a start for a pull."""
    end_in_time()
