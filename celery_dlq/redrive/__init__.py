"""Sending dead letters back: plan, claim, check, repair the canvas, pace, publish, confirm."""
