package envoy

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"text/template"
)

// Bootstrap is a configuration of our own for an Envoy that carries what the
// pipe would.
type Bootstrap struct {
	Inbound   []Route
	Outbound  string // host:port of the listener for captured outbound traffic; empty: none
	AccessLog string // file; empty: none
}

// Route is one way in.
type Route struct {
	Listen, App string // host:port
	Protocol    string // auto, http or tcp, as the pipe's
}

// StatPrefix names the stats of a way in as Istio does.
func (r Route) StatPrefix() string {
	host, port, _ := net.SplitHostPort(r.Listen)
	if host == "" {
		host = "::"
	}
	return "inbound_" + host + "_" + port + ";"
}

//go:embed bootstrap.yaml.tmpl
var bootstrapText string

var bootstrapTemplate = template.Must(template.New("bootstrap").Funcs(template.FuncMap{
	"json":    func(v any) (string, error) { b, err := json.Marshal(v); return string(b), err },
	"address": addressJSON,
}).Parse(bootstrapText))

// Render writes the configuration with the admin API at admin.
func (b Bootstrap) Render(admin string) ([]byte, error) {
	var out bytes.Buffer
	err := bootstrapTemplate.Execute(&out, struct {
		Bootstrap
		Admin  string
		Format string
	}{b, admin, accessLogFormat})
	if err != nil {
		return nil, fmt.Errorf("write envoy's bootstrap: %w", err)
	}
	return out.Bytes(), nil
}

// addressJSON is an address as Envoy's configuration has it. An empty host is
// every address, IPv4 and IPv6.
func addressJSON(address string) (string, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		b, err := json.Marshal(map[string]any{"pipe": map[string]any{"path": path}})
		return string(b), err
	}
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return "", fmt.Errorf("port of %q: %w", address, err)
	}
	socket := map[string]any{"address": host, "port_value": port}
	switch host {
	case "":
		socket["address"], socket["ipv4_compat"] = "::", true
	case "localhost":
		socket["address"] = "127.0.0.1"
	}
	b, err := json.Marshal(map[string]any{"socket_address": socket})
	return string(b), err
}

// accessLogFormat is Istio's default.
const accessLogFormat = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%
`
