"""HTTP for all resources: the values and filters of a request, permission, form tokens, errors, and reads of
the store that do not block Flower's event loop. Requests enter; the handlers of resources build on it."""
