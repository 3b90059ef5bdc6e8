"""What the text frames of a terminal may say."""

import pytest

from sessions.terminal.messages import Ack, Ping, Resize, Seen, close_reason, message_from_text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"resize": [80, 24]}', Resize(80, 24)),
        ('{"resize": [1, 1000]}', Resize(1, 1000)),
        ('{"ack": 65536}', Ack(65536)),
        ('{"ping": 1}', Ping(1)),
        ('{"seen": 4}', Seen(4)),
    ],
)
def test_messages_are_read(text: str, message: object) -> None:
    assert message_from_text(text) == message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '{"resize": [0, 24]}',
        '{"resize": [80, 1001]}',
        '{"resize": [80.5, 24]}',
        '{"resize": [80]}',
        '{"ack": 0}',
        '{"ack": "1"}',
        "[" * 100_000,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        message_from_text(text)


def test_a_long_reason_is_cut_between_letters() -> None:
    assert close_reason("grüße") == "grüße"
    assert close_reason("ü" * 200) == "ü" * 61
