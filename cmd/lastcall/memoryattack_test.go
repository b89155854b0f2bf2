package main

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

// attackConnections is how many connections one client opens; of those that send 8 KiB or more, heavyConnections are
// more than the 853 that the sidecar holds (TestSharesOfMemory), and their bytes several times its budget.
const (
	attackConnections = 2000
	heavyConnections  = 1000
)

// attackMemory is the limit of a sidecar's memory whatever its clients send, bytes.
const attackMemory = 64 << 20

// One client opens thousands of connections and sends on each as much as may be held before a request passes. A sidecar
// in 64 MiB lives, before and during its drain, and another client's requests are answered, on new connections and on a
// kept one. The kinds of unfinished bytes are counted one by one in TestUnfinishedIsEnded of internal/sidecar/pipe.
//
//	go test -run TestUnfinishedRequests -v ./cmd/lastcall
func TestUnfinishedRequests(t *testing.T) {
	t.Parallel()
	authority := certificatetest.New(t)
	secret := certificatetest.NewSecret(t)
	secret.Write(authority.Sign("sidecar", 0), nil)
	withTLS := ",tls-cert=" + secret.Cert() + ",tls-key=" + secret.Key()

	log := []string{"--access-log", "/dev/null"}
	turns := make(chan struct{}, 2) // two sidecars at a time: both wait for their clocks, and each takes 3000 descriptors
	for _, attack := range []attack{
		{name: "heads of one byte", options: ",protocol=http", bytes: "G"},
		{name: "header blocks of HTTP/2 behind a request, and a FIN", bytes: h2Preface() + h2Requests(1) + h2Block(3),
			ends: true},
		{name: "streams", bytes: h2Preface() + h2Requests(300), connections: 600},
		{name: "streams with an access log", bytes: h2Preface() + h2Requests(100), connections: 600, args: log},
		{name: "ClientHellos", options: withTLS, bytes: record(16004, "\x01\x00\xff\xff", 16000) +
			record(16000, "", 16000) + record(16000, "", 16000)},
		{name: "pipelined requests", bytes: strings.Repeat(
			"GET /never HTTP/1.1\r\nHost: app\r\nX: "+strings.Repeat("x", 700)+"\r\n\r\n", 80)},
		{name: "silence"},
		{name: "streams whose log entries refer to HPACK's table", bytes: h2Preface() + h2Logged(100, 3900),
			connections: 900, args: log},
		{name: "a few such streams", bytes: h2Preface() + h2Logged(3, 3900), connections: 1000, args: log},
		{name: "one stream with a long field", bytes: h2Preface() + h2Logged(1, 15000), connections: 1000, args: log},
		{name: "header blocks behind streams", bytes: h2Preface() + h2Logged(3, 3900) + h2Block(7), connections: 1000,
			args: log},
		{name: "header blocks behind a stream, in TLS", options: withTLS + ",tls-alpn=h2",
			bytes: h2Preface() + h2Requests(1) + h2Block(3), connections: 500, inTLS: true},
	} {
		t.Run(attack.name, func(t *testing.T) {
			t.Parallel()
			turns <- struct{}{}
			defer func() { <-turns }()
			attack.run(t, authority)
		})
	}
}

// attack has the bytes that one client sends on each of many connections.
type attack struct {
	name, options string
	bytes         string
	ends          bool // with a FIN
	connections   int  // 0: heavyConnections or attackConnections
	args          []string
	inTLS         bool
}

// run attacks a sidecar: all connections come while it serves, and half as many more while it drains.
func (attack attack) run(t *testing.T, authority *certificatetest.Authority) {
	t.Helper()
	cmd := exec.Command(programtest.Build(t))
	cmd.Env = append(os.Environ(), "GOGC=", "GOMEMLIMIT=", "MINIMUM_DRAIN_DURATION=120s",
		"TERMINATION_GRACE_PERIOD_SECONDS=300")
	cmd.Stderr = new(strings.Builder)
	a := startAgent(t, cmd, startAttackedApp(t)+attack.options, attack.args...)
	url := "http://" + a.address + "/"
	transport := &http.Transport{}
	if strings.Contains(attack.options, "tls-cert") {
		url, transport = "https://"+a.address+"/",
			&http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool(), ServerName: "sidecar"}}
	}
	transport.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext
	stop := make(chan struct{})
	var others sync.WaitGroup
	var answered, fresh, announced atomic.Int64 // fresh: on new connections
	var slowest atomic.Int64
	for _, keep := range []bool{true, false} {
		tr := transport.Clone()
		tr.DisableKeepAlives = !keep
		client := &http.Client{Timeout: 20 * time.Second, Transport: tr}
		others.Go(func() {
			defer client.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
				}
				began := time.Now()
				resp, err := client.Get(url)
				if err != nil {
					t.Errorf("another client's request (kept connection: %v) after %v: %v",
						keep, time.Since(began), err)
					return
				}
				body, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Errorf("another client's request (kept connection: %v): %s %s", keep, resp.Status, body)
					return
				}
				answered.Add(1)
				if keep && resp.Close {
					announced.Add(1)
				}
				if !keep {
					fresh.Add(1)
				}
				slowest.Store(max(slowest.Load(), int64(time.Since(began))))
			}
		})
	}
	began := time.Now()
	var conns []net.Conn
	most := int64(attackConnections)
	if len(attack.bytes) >= 8<<10 {
		most = heavyConnections
	}
	most = cmp.Or(int64(attack.connections), most)
	for _, isDraining := range []bool{false, true} {
		if isDraining {
			most /= 2
			_ = cmd.Process.Signal(syscall.SIGTERM)
			polltest.Eventually(t, "the drain is announced", func() bool { return announced.Load() > 0 || t.Failed() })
			fresh.Store(0)
		}
		conns = append(conns, openAttack(t, a.address, attack, most, &fresh)...)
		before := answered.Load()
		polltest.Eventually(t, "another client's requests are answered afterwards", func() bool {
			return answered.Load() >= before+20 || t.Failed()
		})
	}
	took := time.Since(began)
	close(stop)
	others.Wait()
	select {
	case <-a.ended:
		t.Errorf("the sidecar has ended: %v", cmd.ProcessState)
	default:
	}
	t.Logf("%d connections in %v; %d of others' requests answered, the slowest in %v; most memory %d MiB; %s",
		len(conns), took.Round(time.Millisecond), answered.Load(),
		time.Duration(slowest.Load()).Round(time.Millisecond), programtest.Peak(t, cmd)>>20, evictions(a.status))
	polltest.Eventually(t, "the sidecar ends by the last call, which lists what it ends", func() bool {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-a.ended:
			return true
		default:
			return false
		}
	})
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() && status.Signal() == syscall.SIGKILL {
		t.Errorf("at the last call: %v", cmd.ProcessState)
	}
	for _, c := range conns {
		_ = c.Close()
	}
}

// h2Logged are so many requests that are not answered, with a User-Agent of so many bytes. All but the first refer to
// HPACK's table for it if it has room.
func h2Logged(n, bytes int) string {
	var out, block strings.Builder
	f, e := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	for i := range n {
		block.Reset()
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "app"},
			{":path", "/waiting/"}, {"user-agent", strings.Repeat("x", bytes)}} {
			_ = e.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), EndHeaders: true, EndStream: true,
			BlockFragment: []byte(block.String())})
	}
	return out.String()
}

// openAttack opens the connections and sends the bytes on each, as far as the peer takes them.
//
// While another client connects once, a part of the connections that fit come: with all of them in that time, as on a
// machine with an idle processor, its handshake would be the oldest.
func openAttack(t *testing.T, address string, a attack, most int64, others *atomic.Int64) []net.Conn {
	t.Helper()
	var mu sync.Mutex
	var conns []net.Conn
	var attackers sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		attackers.Go(func() {
			for n := next.Add(1); n <= most && !t.Failed(); n = next.Add(1) {
				for n > 200+100*others.Load() && !t.Failed() {
					time.Sleep(time.Millisecond)
				}
				c, err := net.DialTimeout("tcp", address, patience)
				if err != nil {
					continue
				}
				mu.Lock()
				conns = append(conns, c)
				mu.Unlock()
				_ = c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
				if a.inTLS {
					c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
				}
				_, _ = io.WriteString(c, a.bytes)
				if a.ends {
					_ = c.(*net.TCPConn).CloseWrite()
				}
			}
		})
	}
	attackers.Wait()
	return conns
}

// evictions are the metrics of what was ended for the memory's sake.
func evictions(status string) string {
	var out []string
	for line := range strings.Lines(textOf("http://" + status + "/metrics")) {
		if strings.HasPrefix(line, "lastcall_connections_evicted_total") && !strings.HasSuffix(line, " 0\n") ||
			strings.HasPrefix(line, "lastcall_unfinished_bytes") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return strings.Join(out, "; ")
}

func h2Preface() string {
	var out strings.Builder
	out.WriteString(http2.ClientPreface)
	_ = http2.NewFramer(&out, nil).WriteSettings()
	return out.String()
}

// h2Requests are so many requests, which no app answers.
func h2Requests(n int) string {
	var out strings.Builder
	f := http2.NewFramer(&out, nil)
	for i := range n {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), EndHeaders: true, EndStream: true,
			BlockFragment: []byte("\x82\x86\x04\x7f\x49/waiting/" + strings.Repeat("x", 191) + "\x41\x03app")})
	}
	return out.String()
}

// h2Block begins a header block that does not end: a HEADERS frame, and CONTINUATION frames.
func h2Block(stream uint32) string {
	var out strings.Builder
	for _, frame := range []struct {
		kind      http2.FrameType
		of, bytes int
	}{{http2.FrameHeaders, 8000, 8000}, {http2.FrameContinuation, 16000, 16000}, {http2.FrameContinuation, 16000,
		16000},
		{http2.FrameContinuation, 16000, 16000}, {http2.FrameContinuation, 4000, 3000}} {
		out.Write([]byte{0, byte(frame.of >> 8), byte(frame.of), byte(frame.kind), 0})
		out.Write(binary.BigEndian.AppendUint32(nil, stream))
		out.WriteString(strings.Repeat("\x82", frame.bytes))
	}
	return out.String()
}

// record is a handshake record of TLS, with the header of a message and so many bytes of it.
func record(length uint16, header string, bytes int) string {
	return string(binary.BigEndian.AppendUint16([]byte{22, 3, 1}, length)) + header + strings.Repeat("x", bytes)
}

// startAttackedApp answers requests of HTTP/1 without a body, those for /slow after 10 ms and those for /never not at
// all, and HTTP/2 with SETTINGS alone. It parses no header fields: with the race detector net/http's server takes ten
// times as much of the processors for them as the sidecar.
func startAttackedApp(t *testing.T) string {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	nettest.Each(t, ln, func(c net.Conn) {
		r := bufio.NewReaderSize(c, 64<<10)
		for first := ""; ; {
			line, err := r.ReadSlice('\n')
			switch {
			case err != nil:
				return
			case first == "":
				first = string(line)
				continue
			case len(line) > len("\r\n"):
				continue
			case strings.HasPrefix(first, "PRI "):
				_ = http2.NewFramer(c, nil).WriteSettings()
				_, _ = io.Copy(io.Discard, r)
				<-t.Context().Done() // its requests wait, whatever its client does
				return
			case strings.HasPrefix(first, "GET /never "):
				_, _ = io.Copy(io.Discard, r)
				return
			case strings.HasPrefix(first, "GET /slow "):
				time.Sleep(10 * time.Millisecond)
			}
			first = ""
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nanswered")
		}
	})
	return ln.Addr().String()
}
