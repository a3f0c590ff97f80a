"""Work-arounds for behaviour of Celery, kombu and billiard, one module for each. Only objects of those
libraries enter and leave. The modules know neither letters nor the store.

================== =============================== ============================= ============================
module             needed by                       upstream                      delete it when
================== =============================== ============================= ============================
chord_headers      Celery 5.5 to 5.7               none; a missing feature       Celery keeps the members of
                                                                                 a chord that failed
gevent_shutdown    Celery 5.5 to 5.7, gevent       celery/celery#6111, open      signal handlers no longer
                                                                                 run in gevent's hub
last_results       Celery 5.6.3 and 5.7, billiard  celery/celery#10151 and       ``AsynPool.flush`` forgets
                   4.3                             celery/billiard#279           no jobs of living processes
redis_items        kombu 5.5 to 5.7                celery/kombu#2421 (for SQS);  ``_brpop_read`` rejects what
                                                   none for Redis                it cannot read
redis_take         kombu 5.5 to 5.7                celery/celery#7950, open      ``_brpop_start`` takes and
                                                                                 notes a message in one step
short_countdowns   Celery 5.5 to 5.7               none                          Celery sends a message with
                                                                                 a countdown below a second
unsent_jobs        billiard 4.3, prefork           none                          billiard forgets a job that
                                                                                 it could not pickle
================== =============================== ============================= ============================

Each docstring names the lines that cause the behaviour, and the test that fails without the work-around. To
try a new version, delete the call and run that test. ``worker/step.py`` has the calls of ``chord_headers``,
``last_results``, ``redis_items`` and ``redis_take``, and ``worker/capture.py`` the guard of
``gevent_shutdown``. ``worker/task.py`` and ``worker/body/answer.py`` call ``short_countdowns``;
``worker/request/handover.py`` calls ``unsent_jobs``.
"""
