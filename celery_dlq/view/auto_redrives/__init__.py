"""Automatic redrives as the command line and Flower show them."""
