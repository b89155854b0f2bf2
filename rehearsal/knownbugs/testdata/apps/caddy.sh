#!/bin/sh
# Starts Caddy in front of gunicorn, and ends gunicorn after it.
set -eu
dir=$1 port=$2
gunicorn --chdir "$dir" -k gthread --threads 8 -b "unix:$dir/caddy-$port.sock" wsgi:app &
app=$!
until [ -S "$dir/caddy-$port.sock" ]; do sleep 0.05; done
printf '{\n  admin off\n}\nhttp://:%s {\n  bind 127.0.0.1\n  reverse_proxy unix/%s\n}\n' "$port" "$dir/caddy-$port.sock" >"$dir/caddy-$port.conf"
XDG_DATA_HOME=$dir XDG_CONFIG_HOME=$dir caddy run --adapter caddyfile --config "$dir/caddy-$port.conf" &
caddy=$!
trap 'kill -TERM $caddy' TERM
wait $caddy || :
wait $caddy || :
kill $app
wait $app || :
