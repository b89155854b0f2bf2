#!/bin/sh
# Makes a database and starts PostgreSQL on one port, as another user than root.
set -eu
data=$1/pg-$2
run=
if [ "$(id -u)" = 0 ]; then
    run="setpriv --reuid=www-data --regid=www-data --clear-groups"
    mkdir -p "$data" && chown www-data "$data"
fi
$run initdb -D "$data" -A trust -U app --no-sync --no-locale -E UTF8 >/dev/null
exec $run postgres -D "$data" -p "$2" -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off
