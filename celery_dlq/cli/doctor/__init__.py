"""Health checks: ``doctor`` examines an installation for people. The app and the store enter; findings and an
exit status leave. Nothing is changed."""
