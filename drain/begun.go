package drain

import "context"

type begunKey struct{}

// Begun returns a channel that is closed when the drain begins of the data plane that ctx belongs to: the context of an
// HTTP request or of a gRPC call. lastcall.Draining is this function. It returns nil, which is never ready, for
// any other context. After a drain that was cancelled it returns another channel.
func Begun(ctx context.Context) <-chan struct{} {
	if channel, ok := ctx.Value(begunKey{}).(func() <-chan struct{}); ok {
		return channel()
	}
	return nil
}

// WithBegun returns a context for which Begun returns what channel returns: it is for data planes.
func WithBegun(ctx context.Context, channel func() <-chan struct{}) context.Context {
	return context.WithValue(ctx, begunKey{}, channel)
}
