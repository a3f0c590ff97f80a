"""The REST API. It returns the records of the command line's ``--format json``, with the tab's permissions.
Requests enter and JSON leaves; HTML is unknown here."""
