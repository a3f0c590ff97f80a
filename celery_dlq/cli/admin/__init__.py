"""Commands for administrators: schema, spool, ingesting, metrics, schedules and documentation. Each enters as
a click command; tables and messages leave."""
