"""What host workers write, one after the other, as a program that a test runs with a host's own credentials."""

import threading

import django

django.setup()

from django.db import transaction  # noqa: E402  # models can be imported only once Django is set up
from django.utils import timezone  # noqa: E402

from deployments.models import Replica, ReplicaHealth  # noqa: E402
from folders import sweeps  # noqa: E402
from folders.models import StorageRoot  # noqa: E402
from folders.quotas import measure  # noqa: E402
from folders.storage import roots  # noqa: E402
from hostworker.agent.due_work import DueWork, Work  # noqa: E402
from hostworker.gpus.usage_recorder import fold_records  # noqa: E402
from hostworker.images import host_images  # noqa: E402
from hostworker.replicas.replica_watch import ReplicaWatch  # noqa: E402
from hostworker.runtime_protocol import HeldImage  # noqa: E402
from resources.hosts import health as host_health  # noqa: E402
from resources.hosts import measurements  # noqa: E402
from resources.hosts import services as hosts  # noqa: E402
from resources.models import Gpu, GpuReading, Host  # noqa: E402
from sessions import notes  # noqa: E402
from sessions.conversion import services as conversions  # noqa: E402
from sessions.lifecycle import Kind, Reason, Status  # noqa: E402
from sessions.models import Conversion, Session, SessionUsage  # noqa: E402
from sessions.resizing import services as resizing  # noqa: E402
from tests.gpu_reports import report_of  # noqa: E402
from tests.wait import until  # noqa: E402


def work() -> None:
    """Do it all; what is refused raises."""
    host = Host.objects.get()
    session = Session.objects.exclude(kind=Kind.REPLICA).select_related("host", "image").get()
    watch = ReplicaWatch(host)
    watch.poll()
    assert hosts.heartbeat(host)
    due = DueWork(host)
    assert all(due.is_due(each) for each in Work)
    assert due.is_due(Work.SESSIONS)
    hosts.declare_joining(host)
    hosts.record_readings([GpuReading(gpu=gpu) for gpu in Gpu.objects.filter(host=host)])
    measurements.store(host.name, report_of(Gpu.objects.get(host=host)), by="root@gpu7")
    notes.note(session, Reason.PROCESS_OUT_OF_MEMORY, "A process was killed.")
    assert session.resize
    assert resizing.finish(session.pk, session.resize["id"], "It uses more.")
    roots.check(host)
    measure.measure_due(StorageRoot.objects.get(), threading.Event())
    sweeps.sweep(StorageRoot.objects.get())
    SessionUsage.objects.create(session=session)
    fold_records(host, timezone.now())
    SessionUsage.objects.all().delete()
    host_images._complete(session.image, HeldImage(size_bytes=5, architecture="amd64"))
    conversion = conversions.begin(str(Conversion.objects.get().pk))
    assert conversion
    conversions.finish(conversion, host, size_bytes=1, registry_digest="", recipe="FROM x")
    with transaction.atomic():
        for _ in range(host_health.MAX_FAILURES):
            host_health.note_failure(host, "Its disk is full.", has_gpu=False)
    host_health.note_probe(host, "")
    until(lambda: watch.poll() or Replica.objects.filter(health=ReplicaHealth.UNHEALTHY).exists())  # type: ignore[func-returns-value]
    watch.end()
    session.move_to(Status.ERROR, Reason.CONTAINER_LOST, "Gone.")


if __name__ == "__main__":
    work()
