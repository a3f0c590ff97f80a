"""What happens in a worker: the task's side (pool child) and the message's side (parent)."""
