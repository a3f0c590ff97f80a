"""One module for each resource: its pages and its REST API. Requests enter; a handler reads the store or asks
for an act, and answers with HTML or with the records of the command line's ``--format json``. A page is made
of one frozen value and one template."""
