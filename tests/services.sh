#!/usr/bin/env bash
# Finds the services that the tests need, and starts those that are installed but stopped. The browser and
# PgBouncer are installed, too, where this runs as root on Debian.
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

install() { # name packages...
    local name=$1
    shift
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return
    echo "installing $name"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >/dev/null 2>&1
    apt-get install -yqq --no-install-recommends "$@" >/dev/null 2>&1 || echo "$name could not be installed" >&2
}

have_chromium() {
    command -v "${CELERY_DLQ_TEST_CHROMIUM:-chromium}" >/dev/null && return
    install chromium chromium fonts-dejavu-core
}

# The tests start their own; Debian's package would start one, too, unless a policy forbids it.
have_pgbouncer() {
    local policy=/usr/sbin/policy-rc.d
    PATH=$PATH:/usr/sbin command -v pgbouncer >/dev/null && return
    if [ "$(id -u)" != 0 ] || [ -e "$policy" ]; then
        install pgbouncer pgbouncer
        return
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    install pgbouncer pgbouncer
    rm -f "$policy"
}

# Of Debian's package only the tool: its server would be started.
have_promtool() {
    local cache
    cache="$(dirname "$0")/../.cache"
    command -v promtool >/dev/null || [ -x "$cache/promtool" ] && return
    command -v apt-get >/dev/null || return
    echo "fetching promtool"
    mkdir -p "$cache/debian"
    (cd "$cache/debian" && apt-get download -qq prometheus) >/dev/null 2>&1 ||
        (apt-get update -qq && cd "$cache/debian" && apt-get download -qq prometheus) >/dev/null 2>&1
    dpkg-deb --fsys-tarfile "$cache"/debian/prometheus_*.deb 2>/dev/null |
        tar --extract --directory "$cache" --strip-components 3 ./usr/bin/promtool 2>/dev/null ||
        echo "promtool could not be fetched" >&2
    rm -rf "$cache/debian"
}

have_chromium
have_pgbouncer
have_promtool
ensure PostgreSQL 5432 start_postgresql
ensure MariaDB 3306 start_mariadb
ensure Redis 6379 start_redis
ensure RabbitMQ 5672 start_rabbitmq
exit 0
