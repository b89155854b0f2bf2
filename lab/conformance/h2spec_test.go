package conformance

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
)

// stricter are the cases of h2spec in which the pipe gives another result than the
// app, and why that is well. Each is one that the app fails.
var stricter = map[string]string{
	"hpack/4.2/1 Sends a dynamic table size update at the end of header block":                          "RFC 7541, 4.2; nginx takes it",
	"hpack/5.2/1 Sends a Huffman-encoded string literal representation with padding longer than 7 bits": "RFC 7541, 5.2; nginx takes it",
}

// Each case of h2spec gives through the pipe what it gives against the app directly.
// A case that the app passes must pass; one that it fails may pass only when it
// stands in the list of those in which the pipe is stricter.
func TestH2Spec(t *testing.T) {
	for _, app := range apps {
		t.Run(app.name, func(t *testing.T) {
			addr := app.start(t)
			p := startPipe(t, addr)
			over := startPipe(t, addr, secured(t))
			cases := make(map[string]*spec.TestCase)
			for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
				collect(cases, group)
			}
			if len(cases) < 140 {
				t.Fatalf("only %d cases", len(cases))
			}
			var counts struct {
				sync.Mutex
				passed, failed, skipped int
			}
			t.Run("cases", func(t *testing.T) {
				for id, c := range cases {
					t.Run(id, func(t *testing.T) {
						t.Parallel()
						var direct, through, secure string
						// Some cases depend on the server's speed; the most frequent result counts.
						for try := range 4 {
							timeout := time.Second << try
							var both sync.WaitGroup
							both.Go(func() { direct = result(c, addr, timeout, false) })
							both.Go(func() { through = result(c, p.Addr(0), timeout, false) })
							both.Go(func() { secure = result(c, over.Addr(0), timeout, true) })
							both.Wait()
							if verdict(direct) == verdict(through) && verdict(direct) == verdict(secure) {
								break
							}
						}
						counts.Lock()
						switch verdict(through) {
						case "passed":
							counts.passed++
						case "skipped":
							counts.skipped++
						default:
							counts.failed++
						}
						counts.Unlock()
						for _, got := range []string{through, secure} {
							if verdict(direct) == verdict(got) || verdict(got) == "passed" && stricter[id] != "" {
								continue
							}
							t.Errorf("%s\ndirectly: %s\nthrough the pipe: %s\nthrough its TLS: %s", c.Requirement, direct, through, secure)
							break
						}
					})
				}
			})
			t.Logf("through the pipe: %d passed, %d failed, %d skipped", counts.passed, counts.failed, counts.skipped)
			awaitIdle(t, p) // h2spec itself leaves some connections open
		})
	}
}

func collect(cases map[string]*spec.TestCase, group *spec.TestGroup) {
	for i, c := range append(group.Tests, group.StrictTests...) {
		cases[fmt.Sprintf("%s/%d %s", group.ID(), i+1, c.Desc)] = c
	}
	for _, below := range group.Groups {
		collect(cases, below)
	}
}

func verdict(result string) string {
	word, _, _ := strings.Cut(result, ":")
	return word
}

// result runs a case: "passed", "skipped" or "failed: …".
func result(c *spec.TestCase, addr net.Addr, timeout time.Duration, secure bool) string {
	at := addr.(*net.TCPAddr)
	cfg := &config.Config{Host: at.IP.String(), Port: at.Port, Path: "/", Timeout: timeout, MaxHeaderLen: 4000, Strict: true, TLS: secure, Insecure: true}
	conn, err := spec.Dial(cfg)
	if err != nil {
		return "failed: " + err.Error()
	}
	defer conn.Close()
	switch err := c.Run(cfg, conn); err {
	case nil:
		return "passed"
	case spec.ErrSkipped:
		return "skipped"
	default:
		return "failed: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
}
