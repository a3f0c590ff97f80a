"""The REST interface: the records of the command line's ``--format json``, under the tab's rules."""
