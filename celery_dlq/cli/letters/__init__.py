"""Commands for letters and groups: inspect, triage, edit, close, reclassify, archive and remove. Selections
enter, screens and changes in the store leave. Nothing is sent from here: that is the room of redrives."""
