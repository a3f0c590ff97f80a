"""Decides whether a message may enter the pool now.

Requests enter from Celery's consumer. They go on to the pool, or are held, parked, dropped, or condemned as
poison. ``pipeline.py`` has the interface of a guard; ``Capture.admission`` lists the guards in order. This
room knows the request class and the desk. It may not know the step, or how a task is run.
"""
