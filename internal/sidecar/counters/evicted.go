package counters

// Evicted is what a connection was doing when it was ended because the memory for such connections was used up.
type Evicted int

// Kinds of evicted connections.
const (
	EvictedHead        Evicted = iota // its request's head was not complete
	EvictedHeaderBlock                // the same with HTTP/2
	EvictedHello                      // its ClientHello, which passes through, was not complete
	EvictedHandshake                  // its TLS handshake was not complete
	EvictedIdle                       // it was idle, and there was no room for another connection
	EvictedKinds                      // how many there are
)

var evictedNames = [EvictedKinds]string{"head", "header_block", "client_hello", "handshake", "idle"}

func (k Evicted) String() string { return evictedNames[k] }
