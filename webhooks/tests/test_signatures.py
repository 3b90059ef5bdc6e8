"""Messages are signed as the Standard Webhooks specification says."""

import base64

from webhooks.signatures import PREFIX, new_secret, signature, signed_headers

# The example that the specification's libraries are tested with.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE = ("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, '{"test": 2432232314}')
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_signature_is_that_of_the_specification() -> None:
    assert signature(SECRET, *MESSAGE) == SIGNATURE


def test_signatures_of_all_secrets_stand_in_one_header() -> None:
    headers = signed_headers([SECRET, SECRET], *MESSAGE)
    assert headers["webhook-signature"] == f"{SIGNATURE} {SIGNATURE}"
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == (MESSAGE[0], str(MESSAGE[1]))


def test_secrets_are_random_and_of_the_right_length() -> None:
    one, other = new_secret(), new_secret()
    assert one != other
    assert 24 <= len(base64.b64decode(one.removeprefix(PREFIX))) <= 64
