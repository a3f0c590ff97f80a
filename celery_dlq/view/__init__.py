"""Shared by the command line and Flower: words, times, records for other programs, and look-up by a prefix of
an id. Values of the model enter; text and plain data leave. It knows neither click nor Flower."""
