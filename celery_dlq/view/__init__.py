"""What every screen needs, on the command line and in Flower: words, times, and records as they are put
out for other programs."""
