#!/bin/sh
# Starts nginx with its configuration for one port; a body of 150 kB at 100 kB/s takes 1.5 s.
set -eu
head -c 150000 /dev/zero >"$1/nginx.body.$2" && mv "$1/nginx.body.$2" "$1/nginx.body"
sed "s|PORT|$2|g; s|DIR|$1|g" "$1/nginx.conf" >"$1/nginx-$2.conf"
exec nginx -e /dev/stderr -c "$1/nginx-$2.conf"
