"""Data stores that are no SQL databases, and DuckDB."""

from celery_dlq.classify.builtin.stores import (
    cassandra,
    clickhouse,
    duckdb,
    memcached,
    mongo,
    neo4j,
    redis,
    search,
)

ROWS = (
    *redis.ROWS,
    *mongo.ROWS,
    *search.ROWS,
    *cassandra.ROWS,
    *neo4j.ROWS,
    *clickhouse.ROWS,
    *memcached.ROWS,
    *duckdb.ROWS,
)
