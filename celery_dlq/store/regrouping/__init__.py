"""Moves letters to the groups of another recipe, and then the decisions about their former groups.

New fingerprints enter; letters, groups and the rollups change. It knows no recipe.
"""
