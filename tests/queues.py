"""What was sent to the workers: reads the queues of the test run's broker."""

from celery import current_app
from kombu.simple import SimpleQueue

Message = tuple[str, tuple[object, ...]]  # task name, arguments


def take_all(queue: str) -> list[Message]:
    """Remove and return the messages of the queue, the oldest first."""
    taken: list[Message] = []
    with current_app.connection_for_read() as broker, SimpleQueue(broker.default_channel, queue) as messages:
        while True:
            try:
                message = messages.get_nowait()
            except SimpleQueue.Empty:
                return taken
            message.ack()
            taken.append((message.headers["task"], tuple(message.payload[0])))
