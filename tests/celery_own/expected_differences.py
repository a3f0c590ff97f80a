"""Where Celery's own tests end otherwise with DLQTask as the default task class, and why.

The names are exact, so that a difference that is gone is noticed. A name that the installed release
of Celery does not have counts for nothing.
"""

_RETRIES = "t/unit/tasks/test_tasks.py::test_task_retries::"

_REQUEST = "t/unit/worker/test_request.py::test_Request::"

#: Reason to the tests that differ for it.
EXPECTED_DIFFERENCES: dict[str, tuple[str, ...]] = {
    "retry_backoff is float seconds; Celery truncates it to whole seconds, and raises it to 1": (
        f"{_RETRIES}test_autoretry_backoff[0.1-expected_countdowns5]",
        f"{_RETRIES}test_autoretry_backoff[1.9-expected_countdowns7]",
        f"{_RETRIES}test_autoretry_class_based_task[0.1-expected_countdowns5]",
        f"{_RETRIES}test_autoretry_class_based_task[1.9-expected_countdowns7]",
    ),
    "jitter is drawn in float seconds, from another generator; the test patches random.randrange": (
        f"{_RETRIES}test_autoretry_backoff_jitter[True-expected_countdowns3]",
        f"{_RETRIES}test_autoretry_backoff_jitter[-1-expected_countdowns4]",
        f"{_RETRIES}test_autoretry_backoff_jitter[0.1-expected_countdowns5]",
        f"{_RETRIES}test_autoretry_backoff_jitter[1-expected_countdowns6]",
        f"{_RETRIES}test_autoretry_backoff_jitter[1.9-expected_countdowns7]",
        f"{_RETRIES}test_autoretry_backoff_jitter[2-expected_countdowns8]",
        f"{_RETRIES}test_override_backoff_jitter_from_base",
    ),
    "autoretry_for is a rule of the classifier, and run() stays the user's; the test looks into the"
    " closure that Celery's helper puts around run()": (
        "t/unit/tasks/test_tasks.py::test_apply_task::"
        "test_autoretry_shared_retry_kwargs_not_mutated_by_max_retries_override",
    ),
    "a retry that the task's own apply_async() does not send is rejected, and becomes a letter; the"
    " test's only counts its calls": (f"{_RETRIES}test_retry_not_eager",),
    "a SystemExit raised in a worker is the task's failure; with Celery it ends the pool process": (
        "t/unit/tasks/test_trace.py::test_trace::test_trace_SystemExit",
        "t/unit/worker/test_request.py::test_trace_task::test_process_cleanup_BaseException",
    ),
    "what the tracer raises is handed over as the run's failure, since a pool without processes would"
    " never settle the message; Celery's tests expect it to get through": (
        "t/unit/tasks/test_trace.py::test_trace::test_outside_body_error",
        "t/unit/tasks/test_trace.py::test_trace::"
        "test_deduplicate_successful_tasks__reject_propagates_through_trace_task",
    ),
    "a Retry that the body raises itself, without retry(), sends no message, so it is a failure; with"
    " Celery the message is gone": ("t/unit/tasks/test_trace.py::test_trace::test_trace_Retry",),
    "a MemoryError is the task's failure; with Celery it ends the worker": (
        f"{_REQUEST}test_on_failure_propagates_MemoryError",
        "t/unit/worker/test_request.py::test_create_request_class::"
        "test_on_success__propagates_MemoryError",
    ),
    "reject_on_worker_lost is on unless set; the message goes back and is counted": (
        f"{_REQUEST}test_on_failure_exit_from_task_itself_is_worker_lost[exc0-exitcode 1]",
        f"{_REQUEST}test_on_failure_exit_from_task_itself_is_worker_lost[exc1-exitcode 0]",
        f"{_REQUEST}test_on_failure_exit_from_task_itself_is_worker_lost[exc2-exitcode 1]",
        f"{_REQUEST}test_on_failure_exit_from_task_itself_is_worker_lost[exc3-KeyboardInterrupt]",
    ),
    "a termination that nobody asked for was meant for the task that its process ran before, and its own"
    " message goes back; Celery's test expects it to be dropped": (
        f"{_REQUEST}test_on_failure_Terminated",
    ),
    "task-dead-lettered follows task-failed; Celery's test expects one event": (
        f"{_REQUEST}test_on_hard_timeout_sends_task_failed_event",
    ),
    "arguments that are none are refused before the task is started": (
        f"{_REQUEST}test_from_message_invalid_kwargs",
    ),
}
