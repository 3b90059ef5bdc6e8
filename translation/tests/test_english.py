"""Sentences composed in English are recognized when they are shown."""

from collections.abc import Iterator

import pytest
from django.utils import translation

from translation import english
from translation.english import from_english, is_recognized

TEXTS = {
    "Waiting for %(amount)s on one host: none is free.": "한 호스트에서 %(amount)s 대기 중: 남은 것이 없습니다.",
    "%(count)s CPU cores": "CPU 코어 %(count)s개",
    "%(size)s of memory": "메모리 %(size)s",
    "Pulling %(image)s": "%(image)s 가져오는 중",
    "Placed on %(host)s.": "%(host)s에 배치됨.",
}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(english, "ENGLISH_TEXTS", tuple(TEXTS))
    monkeypatch.setattr(english, "gettext", lambda text: TEXTS.get(text, text))
    forget()
    yield
    forget()


def forget() -> None:
    for cached in (english._patterns, english._translated):
        cached.cache_clear()


@pytest.mark.parametrize(
    ("text", "korean"),
    [
        ("Placed on gpu1.example.org.", "gpu1.example.org에 배치됨."),
        (
            "Waiting for 2 CPU cores on one host: none is free.",
            "한 호스트에서 CPU 코어 2개 대기 중: 남은 것이 없습니다.",
        ),
        (
            "Waiting for 2 CPU cores and 4 GiB of memory on one host: none is free. Placed on a.",
            "한 호스트에서 CPU 코어 2개, 메모리 4 GiB 대기 중: 남은 것이 없습니다. a에 배치됨.",
        ),
        ("A text that nobody knows.", "A text that nobody knows."),
        ("A text that nobody knows. Placed on a.", "A text that nobody knows. a에 배치됨."),
        ("", ""),
    ],
)
def test_known_sentences_and_their_amounts_are_translated(text: str, korean: str) -> None:
    with translation.override("ko"):
        assert from_english(text) == korean
    assert from_english(text) == text


def test_only_a_wholly_known_text_is_recognized() -> None:
    assert is_recognized("Placed on a. Pulling b")
    assert not is_recognized("Placed on a. Removed from b.")
