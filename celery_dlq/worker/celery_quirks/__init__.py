"""Work-arounds for behaviour of Celery, kombu and billiard. Only objects of those libraries enter and leave.
The modules know neither letters nor the store.

========================== ========================= ============================ =========================
work-around                needed by                 upstream                     delete it when
========================== ========================= ============================ =========================
brokers.catch_unreadable   kombu 5.5 to 5.7          celery/kombu#2421 (for SQS); ``_brpop_read`` rejects
                                                     none for Redis               an item that it cannot
                                                                                  read
brokers.sendable           Celery 5.5 to 5.7         none                         Celery sends a message
                                                                                  with a countdown below a
                                                                                  second
pools.forget_job           billiard 4.3, prefork     none                         billiard forgets a job
                                                                                  that it could not pickle
pools.free_slots_in_turn   kombu 5.5 to 5.7, prefork none                         kombu's semaphore calls
                                                                                  its waiters in a loop
pools.GreenShutdown        Celery 5.5 to 5.7, gevent celery/celery#6111, open     signal handlers no longer
                                                                                  run in gevent's hub
pools.is_terminated        billiard 4.2 to 4.3.0     celery/billiard#464          Celery 5.7 is the oldest
                                                                                  version that is supported
pools.keep_jobs            Celery 5.5 to 5.7,        celery/celery#10151          ``AsynPool.flush``
                           prefork                                                forgets no jobs of living
                                                                                  processes, and writes
                                                                                  them to their ends
pools                      kombu 5.5 to 5.7, prefork none                         kombu's properties have
  .renew_locks_after_fork                                                         no locks, or renew them
                                                                                  after a fork
redis_take                 kombu 5.5 to 5.7          celery/celery#7950, open     ``_brpop_start`` takes
                                                                                  and notes a message in
                                                                                  one step
unacked_sqs                kombu 5.5 to 5.7          none                         kombu deletes a rejected
  .delete_if_rejected                                                             message from any queue
========================== ========================= ============================ =========================

One more is outside this room, because it changes one of Celery's own tasks: ``keep_chord_headers`` in
``worker/builtin_tasks.py``.

Each docstring names the lines that cause the behaviour, and the test that fails without the work-around. To
try a new version, delete the call and run that test. ``worker/consumer.py`` has the calls of
``catch_unreadable``, ``keep_jobs``, ``renew_locks_after_fork`` and ``redis_take``, and the guard
``GreenShutdown``. ``worker/body/again.py`` calls
``sendable``; ``worker/end/handover.py`` calls ``forget_job`` and ``free_slots_in_turn``.
``worker/end/closing.py`` and ``worker/foreign.py`` call ``delete_if_rejected``.
"""
