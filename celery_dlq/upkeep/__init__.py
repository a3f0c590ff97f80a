"""What workers do for all: release the retries that were parked, and run the redrives that were left to
them."""
