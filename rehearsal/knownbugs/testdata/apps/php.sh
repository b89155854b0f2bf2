#!/bin/sh
# Starts PHP-FPM behind nginx, and sends both the signal SIGNAL at SIGTERM. WAIT is process_control_timeout: for how long
# PHP-FPM's children may finish after SIGQUIT.
set -eu
dir=$1 port=$2
cat >"$dir/fpm-$port.conf" <<CONF
[global]
error_log = /dev/stderr
daemonize = no
process_control_timeout = ${WAIT:-0}
[www]
$([ "$(id -u)" != 0 ] || printf 'user = www-data\nlisten.owner = www-data')
listen = $dir/fpm-$port.sock
listen.mode = 0666
pm = static
pm.max_children = 8
CONF
cat >"$dir/php-$port.conf" <<CONF
pid $dir/php-$port.pid;
daemon off;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path $dir/php-$port.body;
    fastcgi_temp_path $dir/php-$port.fastcgi;
    proxy_temp_path $dir/php-$port.proxy;
    scgi_temp_path $dir/php-$port.scgi;
    uwsgi_temp_path $dir/php-$port.uwsgi;
    server {
        listen 127.0.0.1:$port;
        location / {
            fastcgi_pass unix:$dir/fpm-$port.sock;
            fastcgi_param SCRIPT_FILENAME $dir/index.php;
            fastcgi_param REQUEST_URI \$request_uri;
            fastcgi_param REQUEST_METHOD \$request_method;
        }
    }
}
CONF
php-fpm -F -n -y "$dir/fpm-$port.conf" &
fpm=$!
until [ -S "$dir/fpm-$port.sock" ]; do sleep 0.05; done
nginx -e /dev/stderr -c "$dir/php-$port.conf" &
nginx=$!
# nginx first: it waits for its requests, which need PHP-FPM.
trap 'kill -${SIGNAL:-TERM} $nginx; [ "${SIGNAL:-TERM}" = TERM ] || wait $nginx; kill -${SIGNAL:-TERM} $fpm' TERM QUIT
wait $nginx || :
wait $nginx || :
wait $fpm || :
