"""Every way to die on Amazon SQS: each message comes to its one right end."""

import pytest
from matrix.cells import each_mode, each_play
from matrix.checks import check_end, check_whole

pytestmark = [
    pytest.mark.slow, pytest.mark.service, pytest.mark.nightly, pytest.mark.timeout(400),
    # boto3 leaves connections to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]  # fmt: skip


@each_mode("sqs")
def test_each_message_comes_to_its_one_end(play, mode, sqs_theatre):
    check_end(sqs_theatre, play, mode)


@each_play("sqs")
def test_nothing_is_left_over(play, sqs_theatre):
    check_whole(sqs_theatre, play)
