"""Messages of a broker's own dead-letter queue become letters; only then do they leave the broker."""
