"""HTTP for all pages and the REST API: authentication, permission, form tokens, errors, and reads of the
store that do not block Flower's event loop. Requests enter; handlers for pages and API build on it."""
