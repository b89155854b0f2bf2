package accesslog

// Reply is a local reply in place of the app's response, with Envoy's fields, as users' tools and dashboards expect them.
type Reply struct {
	Status      int
	Body        string
	RetryAfter  string // seconds; empty: none
	GRPCMessage string // empty: Body
}

// Message is the grpc-message.
func (r *Reply) Message() string {
	if r.GRPCMessage != "" {
		return r.GRPCMessage
	}
	return r.Body
}
