"""Between the broker and the pool: whether a message may run now, and how often it has been tried."""
