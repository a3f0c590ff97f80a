"""To the broker and back: ``message`` makes what is sent, a ``publisher`` sends it, ``trace`` gives it its
trace, and ``queues`` asks the broker about queues. It does not know why a letter is sent."""
