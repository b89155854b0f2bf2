package meshconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// opaqueProtocols are those for which the kernel's counters do not distinguish a request in flight from an idle
// connection: several requests share a connection, or either side sends at any time. TLS may contain any of them: most
// clients negotiate HTTP/2.
var opaqueProtocols = []string{
	"grpc", "grpcs", "http2", "h2", "h2c", "https", "tls", "ssl", "ws", "wss", "websocket",
	"tcp", "mqtt", "amqp", "nats", "kafka", "mongo", "mysql", "postgres", "redis", "opaque",
}

// httpsProtocols are those in TLS that may be HTTP/1.1 within, and tlsProtocols all in TLS.
var (
	httpsProtocols = []string{"https", "tls", "ssl"}
	tlsProtocols   = append([]string{"wss", "grpcs"}, httpsProtocols...)
)

// plainProtocols are HTTP/1.1, one request at a time on a connection.
var plainProtocols = []string{"http", "http1"}

// PortProtocols lists the valid protocols of a port, for help texts.
func PortProtocols() []string { return slices.Concat(plainProtocols, opaqueProtocols) }

// PortProtocol is the protocol of a port by its name or type: a whole word of PortProtocols, the word before the first
// hyphen as in Istio (grpc-web, http2-admin), or Kubernetes' standard names (kubernetes.io/h2c, kubernetes.io/wss). It
// is "" for any other name.
func PortProtocol(name string) string {
	name = strings.TrimPrefix(strings.ToLower(name), "kubernetes.io/")
	word, _, _ := strings.Cut(name, "-")
	if slices.Contains(PortProtocols(), word) {
		return word
	}
	return ""
}

// IsMuxedPort reports whether a protocol has many requests at a time on a connection.
func IsMuxedPort(protocol string) bool {
	return slices.Contains([]string{"grpc", "grpcs", "http2", "h2", "h2c"}, protocol)
}

// IsOpaquePort reports whether connections of a protocol of PortProtocol do not show from outside whether they are
// idle.
func IsOpaquePort(protocol string) bool { return slices.Contains(opaqueProtocols, protocol) }

// IsHTTPSPort reports whether connections of a protocol of PortProtocol begin with TLS and may be HTTP/1.1 within.
func IsHTTPSPort(protocol string) bool { return slices.Contains(httpsProtocols, protocol) }

// IsTLSPort reports whether connections of a protocol of PortProtocol begin with TLS.
func IsTLSPort(protocol string) bool { return slices.Contains(tlsProtocols, protocol) }

// ParsePort reads PORT or PORT/PROTOCOL.
func ParsePort(text string) (port uint16, protocol string, err error) {
	number, name, typed := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 {
		return 0, "", fmt.Errorf("%q must be a port from 1 to 65535, such as 8080 or 9090/grpc", text)
	}
	if protocol = PortProtocol(name); typed && protocol == "" {
		return 0, "", fmt.Errorf("%q: the protocol must be one of %s", text, strings.Join(PortProtocols(), ", "))
	}
	return uint16(n), protocol, nil
}
