"""When something is likely to start, as the command line says it."""

from datetime import UTC, datetime, timedelta

from gpuplatform_client.cli.amounts import clock_text, range_text
from gpuplatform_client.cli.spec_files import outlook_text
from gpuplatform_client.models.platform import LaunchEstimate

BEGIN = datetime(2030, 1, 2, 14, 10, tzinfo=UTC)
END = BEGIN + timedelta(minutes=40)


def test_a_likely_start_is_a_range_with_its_certainty() -> None:
    estimate = LaunchEstimate(reason="Waiting.", starts_from=BEGIN, starts_until=END, certainty=0.8)
    assert range_text(estimate) == f"{clock_text(BEGIN)} to {clock_text(END)}, 8 of 10"
    assert outlook_text(estimate) == f"It is likely to start {range_text(estimate)}. Waiting."
    assert outlook_text(LaunchEstimate(reason="Waiting.")) == "It would wait, for how long is not known. Waiting."
