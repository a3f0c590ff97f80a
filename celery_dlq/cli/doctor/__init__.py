"""Health checks: ``doctor`` examines an installation for people, ``check`` compares the queue with limits for
a monitoring system. The app and the store enter; findings and an exit status leave. Nothing is changed."""
