package peers

import "fmt"

// NginxConf is the text of a configuration with which nginx runs in the foreground, as any user, with its files in dir.
// It listens on address, answers / itself and passes every other path to the app at backend. Both are HOST:PORT.
func NginxConf(dir, address, backend string) string {
	return fmt.Sprintf(`daemon off;
worker_processes 2;
pid %[1]s/nginx.pid;
error_log stderr crit;
events { worker_connections 256; }
http {
    access_log off;
    client_body_temp_path %[1]s/body;
    proxy_temp_path %[1]s/proxy;
    fastcgi_temp_path %[1]s/fastcgi;
    uwsgi_temp_path %[1]s/uwsgi;
    scgi_temp_path %[1]s/scgi;
    server {
        listen %[2]s;
        location = / { return 200 served; }
        location / { proxy_pass http://%[3]s; proxy_read_timeout 10m; }
    }
}
`, dir, address, backend)
}
