package httpdrain

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// beginClosing is called when idle connections are closed. It calls the functions of RegisterOnShutdown, as Shutdown
// would: before, new clients might still come, which the functions would miss. If the program has called Shutdown,
// net/http calls them.
func (p *Plane) beginClosing() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing.Swap(true) {
		return
	}
	p.closeBegan = time.Now()
	if !p.ownerEnds.Load() {
		for _, f := range onShutdown(p.server) {
			go f()
		}
	}
}

// onShutdown returns the functions of RegisterOnShutdown. Only Shutdown would call them, which also disables keep-alive
// for good, and a drain can be cancelled. The field is not documented: TestRegisterOnShutdown fails if it changes.
func onShutdown(s *http.Server) []func() {
	all, _ := undocumented[[]func()](s, "onShutdown")
	return slices.DeleteFunc(slices.Clone(all), func(f func()) bool {
		// http2.ConfigureServer's would send the last GOAWAY at once, and requests that cross it would be lost.
		return strings.HasPrefix(runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name(), "golang.org/x/net/http2.")
	})
}

// undocumented returns a field of a struct of the standard library, if it has one of this name and type.
func undocumented[T any](of any, name string) (value T, ok bool) {
	field := reflect.ValueOf(of).Elem().FieldByName(name)
	if !field.IsValid() || field.Type() != reflect.TypeFor[T]() {
		return value, false
	}
	return *(*T)(field.Addr().UnsafePointer()), true
}

// shutDown is called when the program has called the server's own Shutdown or Close, which waits for the connections.
func (p *Plane) shutDown() {
	if p.o.OnShutdown != nil {
		p.o.OnShutdown()
		return
	}
	_ = p.Drain(context.Background())
	_ = p.Close(context.Background())
}

// watched notes that a server has accepted from a listener: net/http returns ErrServerClosed at once for a server that
// was shut down or served before.
type watched struct {
	net.Listener
	p      *Plane
	given  net.Listener // the program's
	isUsed atomic.Bool
}

// Close is called by the server's Shutdown and Close, before they close connections.
func (w *watched) Close() error {
	w.p.ownerEnds.Store(true)
	return w.Listener.Close()
}

// cutByOwner notes the requests whose connection the server's Close, called by the program, closes before they have
// their responses. A client that has left first loses nothing by it.
func (c *conn) cutByOwner() {
	p := c.p
	if !p.ownerEnds.Load() || p.called.Load() || p.killed.Load() || c.left.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for x := range c.requests {
		if !x.hijacked.Load() {
			was := x.conversation()
			was.Ending = "Server.Close"
			p.lost = append(p.lost, was)
		}
	}
}

// Cut implements drain.Cutter.
func (p *Plane) Cut() []drain.Conversation {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.SortedFunc(slices.Values(p.lost), func(a, b drain.Conversation) int { return cmp.Compare(b.Age, a.Age) })
}

func (w *watched) Accept() (net.Conn, error) {
	w.isUsed.Store(true)
	return w.Listener.Accept()
}
