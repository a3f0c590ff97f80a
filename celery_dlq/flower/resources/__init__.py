"""One handler for each resource: its page, and its place in the REST API. Requests enter; a handler reads the
store or asks for an act, and answers with a page or with the records of the command line's ``--format json``.
A template reads the values of the store and of the room ``view``."""
