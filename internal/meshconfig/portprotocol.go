package meshconfig

import (
	"slices"
	"strings"
)

// opaqueProtocols are the protocols of which the kernel's counters do not tell a request in
// flight from an idle connection: several requests share a connection, or either side
// speaks when it likes. Of TLS it is not known what is inside: most clients negotiate
// HTTP/2.
var opaqueProtocols = []string{
	"grpc", "grpcs", "http2", "h2", "h2c", "https", "tls", "ssl", "ws", "wss", "websocket",
	"tcp", "mqtt", "amqp", "nats", "kafka", "opaque",
}

// plainProtocols are HTTP/1.1, one request at a time on a connection.
var plainProtocols = []string{"http", "http1"}

// PortProtocols lists the protocols that a port may be given, for help texts.
func PortProtocols() []string { return slices.Concat(plainProtocols, opaqueProtocols) }

// PortProtocol is the protocol that a port's name or type says: a whole word of
// PortProtocols, the word before the first hyphen as in Istio (grpc-web, http2-admin), or
// Kubernetes' standard names (kubernetes.io/h2c, kubernetes.io/wss). It is "" for
// any other name.
func PortProtocol(name string) string {
	name = strings.TrimPrefix(strings.ToLower(name), "kubernetes.io/")
	word, _, _ := strings.Cut(name, "-")
	if slices.Contains(PortProtocols(), word) {
		return word
	}
	return ""
}

// IsOpaquePort is true of a protocol of PortProtocol's whose idleness cannot be seen from
// outside.
func IsOpaquePort(protocol string) bool { return slices.Contains(opaqueProtocols, protocol) }
