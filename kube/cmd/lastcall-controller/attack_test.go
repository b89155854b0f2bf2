package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	admission "k8s.io/api/admission/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

// hook is a webhook that runs as in its image, and the addresses that it serves on.
type hook struct {
	program *exec.Cmd
	address string
	roots   *x509.CertPool
	log     string
	ended   chan error
}

// peakLimit is the limit of a webhook's resident memory, whatever is sent, bytes.
const peakLimit = 128 << 20

func startHook(t *testing.T) *hook {
	t.Helper()
	dir := t.TempDir()
	h := &hook{roots: x509.NewCertPool(), log: filepath.Join(dir, "log"), ended: make(chan error, 1)}
	h.roots.AppendCertsFromPEM(certify(t, dir))
	log, err := os.Create(h.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	h.program = exec.Command(programtest.Build(t), "--offline", "--image", "lastcall:test", "--listen", "127.0.0.1:0", "--plain-listen", "127.0.0.1:0",
		"--cert-file", filepath.Join(dir, "tls.crt"), "--key-file", filepath.Join(dir, "tls.key"), "--drain-delay", "0s", "--minimum-drain", "1s", "--quiet-time", "0s", "--grace", "8s")
	h.program.Env = append(os.Environ(), "GOGC=", "GOMEMLIMIT=")
	h.program.Stderr = log
	programtest.Within(t, h.program, peakLimit)
	if err := h.program.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { h.ended <- h.program.Wait() }()
	t.Cleanup(func() {
		_ = h.program.Process.Kill()
		if text, err := os.ReadFile(h.log); err == nil && t.Failed() {
			t.Logf("its log:\n%s", text)
		}
	})
	serving := regexp.MustCompile(`reviews=(\S+)`)
	polltest.Eventually(t, "it serves", func() bool {
		text, err := os.ReadFile(h.log)
		if err != nil {
			t.Fatal(err)
		}
		m := serving.FindSubmatch(text)
		if m != nil {
			h.address = string(m[1])
		}
		return m != nil
	})
	return h
}

func certify(t *testing.T, dir string) []byte {
	t.Helper()
	cert, key := certificatetest.Encode(t, certificatetest.SelfSigned(t, "localhost"))
	for name, text := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert
}

// client is one that comes from an address of its own, as API servers and other pods do.
func (h *hook) client(from string, isHTTP2 bool) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: isHTTP2,
		TLSClientConfig: &tls.Config{RootCAs: h.roots, ServerName: "localhost", MinVersion: tls.VersionTLS12},
	}}
}

// review posts one and returns the response.
func (h *hook) review(client *http.Client, body io.Reader) (*admission.AdmissionResponse, error) {
	return h.reviewAt(client, "/inject/namespace?timeout=5s", body)
}

func (h *hook) reviewAt(client *http.Client, path string, body io.Reader) (*admission.AdmissionResponse, error) {
	resp, err := client.Post("https://"+h.address+path, "application/json", body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s %w", resp.Status, text, err)
	}
	var review admission.AdmissionReview
	if err := json.Unmarshal(text, &review); err != nil {
		return nil, err
	}
	if review.Response == nil || review.Response.UID != "u-1" {
		return nil, fmt.Errorf("not a response: %s", text)
	}
	return review.Response, nil
}

// victim sends ordinary reviews until done, and expects each to be injected. It returns how long they took.
func (h *hook) victim(t *testing.T, client *http.Client, atLeast int, done <-chan struct{}) []time.Duration {
	t.Helper()
	var took []time.Duration
	pod := reviewOf(`{"name":"web","image":"web:1","ports":[{"containerPort":80}]}`)
	for {
		if len(took) >= atLeast {
			select {
			case <-done:
				return took
			default:
			}
		}
		began := time.Now()
		r, err := h.review(client, strings.NewReader(pod))
		if err != nil {
			t.Errorf("an ordinary review was not answered: %v", err)
			return took
		}
		if r.Patch == nil {
			t.Errorf("an ordinary pod was not injected: %q", r.Warnings)
			return took
		}
		took = append(took, time.Since(began))
		time.Sleep(5 * time.Millisecond) // the rate of a rollout, not another attack
	}
}

// reviewOf is a pod's creation with these containers.
func reviewOf(containers string) string {
	return reviewOfPod(`"spec":{"containers":[` + containers + `]}`)
}

func reviewOfPod(fields string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","namespace":"shop","operation":"CREATE","object":{"apiVersion":"v1","kind":"Pod",` + fields + `}}}`
}

func times(n int, f func(i int) string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(f(i))
	}
	return b.String()
}

func same(text string) func(int) string { return func(int) string { return text } }

// TestWebhookUnderAttack sends what has killed webhooks to one that runs as in its image. It must stay small, answer
// (or refuse) everything, and inject the pods of other clients meanwhile. Each row is another stage at which a review ends;
// the limits of one stage are in TestScanBounds of kube/webhook.
func TestWebhookUnderAttack(t *testing.T) {
	t.Parallel()
	h := startHook(t)
	quiet := h.client("127.0.0.2", true)
	defer quiet.CloseIdleConnections()
	before := h.victim(t, quiet, 50, closed())
	t.Logf("quiet: p50 %v, p99 %v, peak %d MiB", programtest.Quantile(before, .5), programtest.Quantile(before, .99), programtest.Peak(t, h.program)>>20)

	const config = `"metadata":{"annotations":{"proxy.istio.io/config":%q}},"spec":{"containers":[{"name":"a"}]}`
	text, err := os.ReadFile("../../manifest/testdata/doubling.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doubling, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"
	const lintOf = "lint: "
	for _, c := range []struct {
		name, body string
		warns      string // what each answer must say; empty for any
	}{
		{"200,000 containers", reviewOf(times(200_000, same("{}"))), "more than 1000 elements"},
		{lintOf + "variables that double", strings.Replace(reviewOf(""), `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[]}}`, string(doubling), 1), "add more than 128 KiB"},
		{"8 MB", reviewOfPod(`"metadata":{"annotations":{"a":"` + strings.Repeat("x", 8_000_000) + `"}},"spec":{}`), "more than 2162688 bytes"},
		{"an alias of aliases", reviewOfPod(fmt.Sprintf(config, bomb)), "YAML aliases"},
		{"lists in an annotation", reviewOfPod(fmt.Sprintf(config, "a: ["+times(16_000, same("{}"))+"]")), "the limit is"},
		// The most that is examined.
		{"4,000 containers", reviewOfPod(`"spec":{"initContainers":[` + times(1000, same("{}")) + `],"containers":[` + times(1000, same("{}")) + `],"ephemeralContainers":[` + times(1000, same("{}")) + `],"volumes":[` + times(1000, same("{}")) + `]}`), ""},
		{"1,000 containers with all there is", reviewOf(times(1000, func(i int) string {
			return fmt.Sprintf(`{"name":"c%d","lifecycle":{},"readinessProbe":{"httpGet":{"port":"p"}},"ports":[{"name":"p"}]}`, i)
		})), ""},
		{"2 MB of arguments", reviewOf(`{"name":"a","args":["` + strings.Repeat(`\u00e4`, 340_000) + `"]}`), ""},
	} {
		path := "/inject/namespace?timeout=5s"
		switch {
		case strings.HasPrefix(c.name, lintOf):
			path = "/lint?timeout=5s"
		case c.warns == "":
			path = "/inject/namespace?timeout=1s" // they are examined one after the other, until that time has passed
		}
		done := make(chan struct{})
		var attack sync.WaitGroup
		for i := range 24 {
			client := h.client([]string{"127.0.0.1", "127.0.0.4"}[i%2], i%2 == 0)
			attack.Go(func() {
				defer client.CloseIdleConnections()
				r, err := h.reviewAt(client, path, strings.NewReader(c.body))
				switch {
				case err != nil && i%2 == 1:
					// HTTP/1.1 has no way to end a body that is not wanted but with the connection: its client may
					// miss the answer, and has more connections than it may, since each is closed in two steps.
				case err != nil:
					t.Errorf("%s: %v", c.name, err)
				case !r.Allowed:
					t.Errorf("%s: denied: %v", c.name, r.Result)
				case c.warns != "" && (len(r.Warnings) == 0 || !strings.Contains(r.Warnings[0], c.warns) && !strings.Contains(r.Warnings[0], "too many reviews at once")):
					t.Errorf("%s: warnings %q, want %q", c.name, r.Warnings, c.warns)
				}
			})
		}
		go func() {
			attack.Wait()
			close(done)
		}()
		began := time.Now()
		during := h.victim(t, quiet, 20, done)
		<-done
		t.Logf("%s: %d others' reviews in %v: p50 %v, p99 %v; peak %d MiB", c.name, len(during), time.Since(began).Round(time.Millisecond), programtest.Quantile(during, .5), programtest.Quantile(during, .99), programtest.Peak(t, h.program)>>20)
		if t.Failed() {
			return
		}
	}
	if peak := programtest.Peak(t, h.program); peak > peakLimit {
		t.Errorf("%d bytes resident at most, want %d at most", peak, peakLimit)
	}
	h.terminate(t)
}

// TestWebhookHeld: pods hold more connections and bodies than a webhook has room for; those of eight addresses connect
// again when theirs are ended. The pods of other clients are injected all the while, within the API server's patience,
// also those of one that has no connection yet; SIGTERM ends it.
func TestWebhookHeld(t *testing.T) {
	for _, c := range []struct {
		name            string
		addresses, each int
		ways            int // of hold
		again           bool
	}{
		{"by one address", 1, 400, 4, false},
		{"by eight addresses", 8, 64, 3, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := startHook(t)
			quiet := h.client("127.0.0.2", true)
			defer quiet.CloseIdleConnections()
			h.victim(t, quiet, 1, closed())
			ctx, cancel := context.WithCancel(t.Context())
			var held sync.WaitGroup
			defer held.Wait()
			defer cancel()
			for address := range c.addresses { // one after the other, as much as each gets
				dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+address))}}
				opened := make(chan struct{}, c.each)
				for i := range c.each {
					held.Go(func() {
						for first := true; ctx.Err() == nil && (first || c.again); first = false {
							h.hold(ctx, dialer, i%c.ways, func() {
								if first {
									opened <- struct{}{}
								}
							})
							select { // the next one
							case <-time.After(2 * time.Second):
							case <-ctx.Done():
							}
						}
					})
				}
				for range c.each {
					<-opened
				}
			}
			all := h.victim(t, quiet, 20, closed())
			for i := range 20 {
				fresh := h.client("127.0.0.3", i%2 == 0) // an API server that has no connection yet
				all = append(all, h.victim(t, fresh, 1, closed())...)
				fresh.CloseIdleConnections()
			}
			if t.Failed() {
				return
			}
			if slow := programtest.Quantile(all, 1); slow > 5*time.Second { // the API server's patience
				t.Errorf("a review took %v", slow)
			}
			if peak := programtest.Peak(t, h.program); peak > peakLimit {
				t.Errorf("%d bytes resident at most, want %d at most", peak, peakLimit)
			}
			t.Logf("%d reviews: p50 %v, p99 %v; peak %d MiB", len(all), programtest.Quantile(all, .5), programtest.Quantile(all, .99), programtest.Peak(t, h.program)>>20)
			cancel()
			held.Wait()
			h.terminate(t)
		})
	}
}

// hold opens a connection and keeps it until the server ends it: 0 sends nothing, 1 only shakes hands, 2 sends a body
// slowly that has no end, 3 sends 1 MB and waits with the last byte. opened is called once.
func (h *hook) hold(ctx context.Context, dialer *net.Dialer, way int, opened func()) {
	raw, err := dialer.DialContext(ctx, "tcp", h.address)
	if err != nil {
		opened()
		return
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	nc := raw
	if way > 0 {
		secure := tls.Client(nc, &tls.Config{RootCAs: h.roots, ServerName: "localhost", MinVersion: tls.VersionTLS12})
		if err := secure.HandshakeContext(ctx); err != nil {
			opened()
			return
		}
		nc = secure
	}
	if way > 1 {
		size := map[int]int{2: 200_000, 3: 1 << 20}[way]
		begin := reviewOfPod(`"metadata":{"annotations":{"a":"` + strings.Repeat("x", size))
		fmt.Fprintf(nc, "POST /inject/namespace?timeout=10s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"+
			"Content-Length: %d\r\n\r\n%s", max(1_000_000, len(begin)+1), begin)
	}
	opened()
	for err == nil && way == 2 {
		time.Sleep(100 * time.Millisecond)
		_, err = io.WriteString(nc, "x")
	}
	_, _ = io.Copy(io.Discard, nc)
}

// closed is a channel that is closed.
func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// terminate ends the program with SIGTERM and waits until it has exited, with code 0.
func (h *hook) terminate(t *testing.T) {
	t.Helper()
	if err := h.program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-h.ended:
		if err != nil {
			t.Errorf("exited with %v", err)
		}
	case <-time.After(2 * time.Minute): // longer than any grace period in these tests
		t.Fatal("still running two minutes after SIGTERM")
	}
}
