"""The order in which requests get slots."""

from gpuplatform.serving.admission.queue import SLOTS_EACH, AdmissionQueue, QueuedRequest

PLENTY = 10**6


def queue_with(slots: int = 1, max_requests: int = PLENTY, max_bytes: int = PLENTY) -> AdmissionQueue:
    """Return an empty queue."""
    return AdmissionQueue(slots, max_requests, max_bytes)


def add(queue: AdmissionQueue, principal: str, *costs_seconds: float) -> list[QueuedRequest]:
    """Add a request of each cost, and return them."""
    requests = [QueuedRequest(principal, each) for each in costs_seconds]
    for request in requests:
        assert queue.add(request) == []
    return requests


def served(queue: AdmissionQueue) -> list[QueuedRequest]:
    """Return all that wait in the order in which one slot serves them."""
    order: list[QueuedRequest] = []
    while request := queue.take():
        order.append(request)
        queue.finish(request)
    return order


def test_a_flood_delays_another_principal_by_one_request() -> None:
    queue = queue_with()
    add(queue, "flood", *[0.1] * 500)
    first = queue.take()
    (page,) = add(queue, "other", 0.1)
    assert first
    queue.finish(first)
    assert queue.take() is page


def test_requests_of_no_known_cost_alternate() -> None:
    queue = queue_with()
    add(queue, "flood", *[0.0] * 10)
    add(queue, "other", *[0.0] * 3)
    assert [each.principal for each in served(queue)[:6]].count("other") == 3


def test_principals_share_the_time_and_not_the_requests() -> None:
    queue = queue_with()
    add(queue, "dear", *[1.0] * 10)
    add(queue, "cheap", *[0.1] * 100)
    spent = dict.fromkeys(("dear", "cheap"), 0.0)
    for request in served(queue)[:55]:
        spent[request.principal] += request.cost_seconds
    assert abs(spent["dear"] - spent["cheap"]) <= 1.0


def test_cheap_requests_of_a_principal_come_first() -> None:
    queue = queue_with()
    dear, cheap, as_cheap = add(queue, "user", 2.0, 0.1, 0.1)
    assert served(queue) == [cheap, as_cheap, dear]


def test_a_page_does_not_overtake_a_form_sent_before() -> None:
    queue = queue_with()
    dear, cheap = add(queue, "user", 0.3, 0.2)
    form = QueuedRequest("user", 0.4, is_write=True)
    queue.add(form)
    assert queue.wait_seconds(QueuedRequest("user", 0.01)) >= 0.9 - 1e-9
    (page,) = add(queue, "user", 0.1)
    assert served(queue) == [cheap, dear, form, page]


def test_a_principal_has_one_request_under_way_alone_or_not() -> None:
    queue = queue_with(slots=8)
    requests = add(queue, "flood", *[0.1] * 20)
    started = list(iter(queue.take, None))
    assert started == requests[:1]
    add(queue, "other", 0.1)
    assert [each.principal for each in iter(queue.take, None) if each] == ["other"]


def test_a_flood_pauses_while_another_page_is_under_way() -> None:
    queue = queue_with(slots=8)
    add(queue, "flood", *[0.1] * 20)
    first = queue.take()
    page, last = (add(queue, name, 0.1)[0] for name in ("other", "third"))
    assert [queue.take(), queue.take()] == [page, last]
    assert first
    queue.finish(first)
    assert queue.take() is None
    queue.finish(page)
    queue.note_long(last)
    following = queue.take()
    assert following
    assert following.principal == "flood"


def test_cheap_requests_go_on_beside_a_dear_page() -> None:
    queue = queue_with(slots=8)
    (page,) = add(queue, "page", 0.1)
    assert queue.take() is page
    add(queue, "program", *[0.01] * 20)
    served = 0
    while request := queue.take():
        queue.finish(request)
        served += 1
    assert served == 5


def test_a_finished_request_lets_the_next_one_start() -> None:
    queue = queue_with(slots=8)
    first, second = add(queue, "user", 0.1, 0.1)
    assert queue.take() is first
    queue.finish(first)
    assert queue.take() is second


def test_long_requests_let_others_start_up_to_a_bound() -> None:
    queue = queue_with(slots=2 * SLOTS_EACH)
    requests = add(queue, "user", *[0.1] * (SLOTS_EACH + 1))
    for request in requests[:SLOTS_EACH]:
        assert queue.take() is request
        assert queue.take() is None
        queue.note_long(request)
    assert queue.take() is None
    queue.finish(requests[0])
    assert queue.take() is requests[-1]


def test_the_wait_of_a_newcomer_is_one_round() -> None:
    queue = queue_with()
    add(queue, "flood", *[0.1] * 500)
    assert queue.wait_seconds(QueuedRequest("other", 0.1)) <= 0.1 + 1e-9
    assert queue.wait_seconds(QueuedRequest("flood", 0.1)) >= 50 - 1e-6


def test_nothing_is_waited_for_in_an_empty_queue() -> None:
    assert queue_with().wait_seconds(QueuedRequest("user", 60.0)) == 0


def test_the_longest_queue_loses_its_dearest_request() -> None:
    queue = queue_with(max_requests=3)
    _, dear = add(queue, "flood", 0.1, 0.2)
    add(queue, "other", 0.3)
    assert queue.add(QueuedRequest("third", 0.4)) == [dear]


def test_bytes_are_bounded_by_the_principal_with_most() -> None:
    queue = queue_with(max_bytes=100)
    large = QueuedRequest("flood", 0.1, size_bytes=90)
    assert queue.add(large) == []
    assert queue.add(QueuedRequest("other", 0.1, size_bytes=20)) == [large]


def test_removed_requests_leave_nothing_behind() -> None:
    queue = queue_with()
    requests = add(queue, "user", 0.1, 0.2, 0.3)
    taken = queue.take()
    assert taken
    for request in requests:
        if request is not taken:
            queue.remove(request)
    queue.finish(taken)
    assert queue.take() is None
    assert queue.wait_seconds(QueuedRequest("other", 1.0)) == 0
