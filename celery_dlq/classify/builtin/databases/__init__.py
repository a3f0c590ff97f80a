"""SQL databases: SQLAlchemy, the drivers, and what maps objects to rows."""

from celery_dlq.classify.builtin.databases import (
    django,
    mysql,
    oracle,
    orm,
    postgres,
    sqlalchemy,
    sqlite,
    sqlserver,
    warehouses,
)

ROWS = (
    *sqlalchemy.ROWS,
    *postgres.ROWS,
    *mysql.ROWS,
    *sqlite.ROWS,
    *oracle.ROWS,
    *sqlserver.ROWS,
    *django.ROWS,
    *orm.ROWS,
    *warehouses.ROWS,
)
