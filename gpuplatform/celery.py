"""The Celery application, its default queue and periodic tasks."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpuplatform.settings")

app = Celery("gpuplatform")
app.config_from_object("django.conf:settings", namespace="CELERY")
# Hosts may send to the scheduler's queue, whose tasks take no arguments. Those of hosts are unknown to it: the command
# of the host worker imports them.
app.autodiscover_tasks(
    [
        "endpoints",
        "folders",
        "gpuplatform",
        "hostaccess",
        "notifications",
        "restapi",
        "scheduler",
        "sessions",
        "webhooks",
    ]
)
app.conf.task_default_queue = "scheduler"
app.conf.beat_schedule = {
    # Commits request passes; this one covers lost messages.
    "run_pass": {"task": "scheduler.tasks.run_pass", "schedule": 10.0, "options": {"expires": 10}},
    "enforce_deadlines": {"task": "sessions.tasks.enforce_deadlines", "schedule": 5.0, "options": {"expires": 5}},
    "enforce_idle_rules": {"task": "sessions.tasks.enforce_idle_rules", "schedule": 30.0, "options": {"expires": 30}},
    "announce_ends": {"task": "notifications.tasks.announce_ends", "schedule": 5.0, "options": {"expires": 5}},
    "deliver_mail": {"task": "notifications.tasks.deliver_mail", "schedule": 30.0, "options": {"expires": 30}},
    "forget_notifications": {"task": "notifications.tasks.forget_old", "schedule": 3600.0, "options": {"expires": 600}},
    "forget_idempotency_keys": {
        "task": "restapi.tasks.forget_idempotency_keys",
        "schedule": 3600.0,
        "options": {"expires": 600},
    },
    # Events write messages by triggers, which wake nobody; so this looks often, and is one small query.
    "deliver_webhooks": {"task": "webhooks.tasks.deliver", "schedule": 2.0, "options": {"expires": 2}},
    "forget_webhooks": {"task": "webhooks.tasks.forget_old", "schedule": 3600.0, "options": {"expires": 600}},
    "delete_expired": {"task": "folders.tasks.delete_expired", "schedule": 60.0, "options": {"expires": 60}},
    "back_up": {"task": "gpuplatform.tasks.back_up_if_due", "schedule": 1800.0, "options": {"expires": 600}},
    "hold_redis_users": {"task": "hostaccess.tasks.hold_redis_users", "schedule": 10.0, "options": {"expires": 10}},
    "end_access": {"task": "endpoints.tasks.enforce_deadlines", "schedule": 5.0, "options": {"expires": 5}},
}
