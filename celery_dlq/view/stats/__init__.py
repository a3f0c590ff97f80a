"""The parts of ``dlq stats`` that Flower shows, too: what is kept, what was lost, and where it was read."""
