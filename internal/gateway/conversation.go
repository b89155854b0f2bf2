package gateway

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/drain"
)

// conversation is a request in flight, or what it was upgraded to.
type conversation struct {
	client  *client
	request *http.Request
	began   time.Time
	cancel  context.CancelCauseFunc

	mu       sync.Mutex // guards what follows
	answered bool       // the head of the response has gone out
	word     string     // how lastWord ends it
	lastWord func()     // of its own, for who has one
}

type conversationKey struct{}

// conversationOf is nil outside of a Plane.
func conversationOf(ctx context.Context) *conversation {
	c, _ := ctx.Value(conversationKey{}).(*conversation)
	return c
}

// endBy sets how it ends at the last call, and what says the last word, if anything does
// before it is broken off.
func (c *conversation) endBy(word string, f func()) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.word, c.lastWord = word, f
}

// end says the last word and returns what it was, as reports name it.
func (c *conversation) end() string {
	c.mu.Lock()
	answered, word, f := c.answered, c.word, c.lastWord
	c.mu.Unlock()
	if f != nil {
		f()
		return word
	}
	c.cancel(errLastCall)
	if word != "" {
		return word
	}
	if answered {
		return "truncated"
	}
	return "503"
}

// tell is for reports.
func (c *conversation) tell(now time.Time) drain.Conversation {
	r := c.request
	protocol := strings.ToLower(r.Proto)
	if r.ProtoMajor == 2 {
		protocol = "http/2"
	}
	if up := r.Header.Get("Upgrade"); up != "" && r.ProtoMajor == 1 {
		protocol = strings.ToLower(up)
	}
	return drain.Conversation{Peer: r.RemoteAddr, Protocol: protocol, Request: r.Method + " " + path(r), Age: drain.Millis(max(0, now.Sub(c.began)))}
}

// farewell puts the goodbye into responses while draining. HTTP/2's server makes a GOAWAY
// of it.
type farewell struct {
	http.ResponseWriter
	p *Plane
	c *conversation
}

func (w *farewell) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *farewell) WriteHeader(status int) {
	if status >= 200 {
		w.sayGoodbye()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *farewell) Write(b []byte) (int, error) {
	w.sayGoodbye() // in time for the head that goes with the first byte
	return w.ResponseWriter.Write(b)
}

func (w *farewell) sayGoodbye() {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if !w.c.answered && w.p.draining.Load() {
		w.Header().Set("Connection", "close")
	}
	w.c.answered = true
}

// probes are health checks of load balancers and kubelets, by how their User-Agent begins:
// they never count, or a drain would last as long as somebody checks whether it is over.
var probes = []string{
	"ELB-HealthChecker/",                 // AWS: ALB, NLB
	"GoogleHC/",                          // Google Cloud
	"kube-probe/",                        // kubelet
	"Load Balancer Agent",                // Azure
	"Mozilla/5.0 (compatible;Cloudflare", // Cloudflare-Traffic-Manager and -Healthchecks
	"Envoy/HC",
}

func isProbe(r *http.Request) bool {
	agent := r.UserAgent()
	for _, p := range probes {
		if strings.HasPrefix(agent, p) {
			return true
		}
	}
	return false
}
