"""Applies today's recipe for fingerprints to stored letters.

A store and a recipe enter; letters in other groups leave, and the fate of each group. It reads tracebacks as
text, and runs no code but the recipe.
"""
