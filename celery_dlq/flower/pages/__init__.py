"""The pages of the tab, one file each."""
