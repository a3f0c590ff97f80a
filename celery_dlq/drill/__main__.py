"""The program of a drill's own processes: ``python -m celery_dlq.drill DIRECTORY worker``."""

if __name__ == "__main__":
    from celery import maybe_patch_concurrency

    # Before anything else is imported, as Celery's own program does.
    maybe_patch_concurrency()

    from celery_dlq.drill.process import main

    main()
