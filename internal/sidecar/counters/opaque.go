package counters

// Opaque is why a connection passes through as bytes. It is busy while it is open, and has none of HTTP's limits.
type Opaque int

// Kinds of opaque connections.
const (
	OpaqueTCP         Opaque = iota // by configuration
	OpaqueTLS                       // the app terminates TLS
	OpaqueConnect                   // the app has accepted a CONNECT
	OpaqueUpgrade                   // the app has accepted an upgrade to a protocol that is not followed
	OpaqueServerFirst               // the app sent before any request
	OpaqueUnknown                   // the client's first bytes are neither HTTP nor TLS
	OpaqueKinds                     // how many there are
)

var opaqueNames = [OpaqueKinds]string{"tcp", "tls", "connect", "upgrade", "server_first", "unknown"}

func (k Opaque) String() string { return opaqueNames[k] }
