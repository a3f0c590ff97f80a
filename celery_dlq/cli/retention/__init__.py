"""Commands that remove letters for ever: by hand, and by their age."""
