#!/usr/bin/env bash
# Finds the services that the tests need, and starts those that are installed but stopped.
# What cannot be had is left to the tests: they skip without it, and fail when CI=true.
set -u

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

ensure() { # name port command...
    local name=$1 port=$2
    shift 2
    listening "$port" && return
    echo "starting $name"
    "$@" >/dev/null 2>&1 || true
    for _ in $(seq 60); do
        listening "$port" && return
        sleep 1
    done
    echo "$name does not answer on port $port" >&2
}

start_postgresql() { pg_ctlcluster --skip-systemctl-redirect "$(ls /etc/postgresql | tail -n 1)" main start; }
start_mariadb() { start-stop-daemon --start --oknodo --background --exec /usr/sbin/mariadbd; }
start_redis() { redis-server --daemonize yes --bind 127.0.0.1 --save "" --appendonly no; }
start_rabbitmq() { rabbitmq-server -detached; }

ensure PostgreSQL 5432 start_postgresql
ensure MariaDB 3306 start_mariadb
ensure Redis 6379 start_redis
ensure RabbitMQ 5672 start_rabbitmq
exit 0
