from support.workers.host_suites import Comparison

PLAIN = {"same": "passed", "other": "passed", "third": "skipped"}


def compared(ours, plain=PLAIN):
    return Comparison(release="Celery 5.7.0", plain=plain, ours=ours, healthy=0.5)


def test_a_difference_must_be_expected():
    found = compared({**PLAIN, "other": "failed"})
    assert found.problems({"on purpose": ("other",)}) == []
    [wrong] = found.problems({})
    assert wrong == "other: passed without us, failed with us"


def test_a_test_that_did_not_run_differs():
    [wrong] = compared({"same": "passed", "third": "skipped"}).problems({})
    assert wrong.startswith("other: passed without us, None")


def test_an_expected_difference_that_is_gone_is_a_problem():
    [wrong] = compared(PLAIN).problems({"on purpose": ("other",)})
    assert wrong == "other: ends the same, but is expected to differ: on purpose"


def test_tests_that_a_release_lacks_are_not_expected():
    assert compared(PLAIN).problems({"on purpose": ("new in the next release",)}) == []


def test_a_comparison_of_failures_proves_nothing():
    failed = dict.fromkeys(PLAIN, "failed")
    [wrong] = compared(failed, failed).problems({})
    assert "is a library missing?" in wrong


def test_the_figures(capsys):
    assert compared({**PLAIN, "other": "failed"}).report({}) == 1
    said, wrong = capsys.readouterr().out.splitlines()
    assert said == "Celery 5.7.0: 3 tests, 2 pass without us, 1 with us, 1 differ"
    assert wrong.startswith("other:")
    assert compared(PLAIN).report({}) == 0
