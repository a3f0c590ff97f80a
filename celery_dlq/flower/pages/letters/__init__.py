"""The pages of letters: the list with its filters, one letter, its editor, and acts on many."""
