"""The pages of groups: the list, and one group with what happened to it."""
