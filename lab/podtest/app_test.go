package podtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// isApp turns the test's own program into an app: a process that knows nothing of
// lastcall. It serves HTTP, holds an idle connection to its database as apps do,
// and at SIGTERM ends its server and then says its last words on new connections.
const isApp = "PODTEST_APP"

// lastWords has the app's last requests at SIGTERM; none for an empty address.
type lastWords struct {
	Redis string
	HTTP  string
	Round int           // what it writes
	Pause time.Duration // from the SIGTERM to the first word
}

// event is one line that the app prints. The clock is one for all processes.
type event struct {
	At   time.Time
	What string
	Err  string `json:",omitempty"`
}

// app starts the app in a pod and waits until it serves.
func (p *pod) app(words lastWords) *app {
	p.t.Helper()
	self, err := os.Executable()
	must.Do(p.t, err)
	text, err := json.Marshal(words)
	must.Do(p.t, err)
	// A container has its own processes, all of which end with its first one.
	a := &app{launch(p.t, p.Pod, "app", []string{isApp + "=" + string(text)}, &exec.Cmd{
		Path: self, Args: []string{self}, SysProcAttr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID},
	})}
	p.latest = a.container
	p.until("serving", func() bool { return a.heard("serving") != nil })
	return a
}

type app struct{ *container }

// heard is the first event of a kind; nil if there was none so far.
func (a *app) heard(what string) *event {
	for line := range strings.Lines(a.log.String()) {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && e.What == what {
			return &e
		}
	}
	return nil
}

// lastEvent is the time of the app's last output. Its end comes a moment later; but the kernel ends the other processes
// of a container, which the sidecar watches, before its first one, so that the sidecar's end may be reported before the
// app's.
func (a *app) lastEvent() (at time.Time) {
	for line := range strings.Lines(a.log.String()) {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && e.At.After(at) {
			at = e.At
		}
	}
	return at
}

// failed are the last words that did not reach their destination.
func (a *app) failed() (out []string) {
	for line := range strings.Lines(a.log.String()) {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && e.Err != "" {
			out = append(out, e.What+": "+e.Err)
		}
	}
	return out
}

func runApp() int {
	var mu sync.Mutex
	say := func(what string, err error) bool {
		e := event{At: time.Now(), What: what}
		if err != nil {
			e.Err = err.Error()
		}
		line, _ := json.Marshal(e)
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(string(line))
		return err == nil
	}
	var words lastWords
	if err := json.Unmarshal([]byte(os.Getenv(isApp)), &words); err != nil {
		say("start", err)
		return 2
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	ln, err := net.Listen("tcp", fmt.Sprintf(":%d", appPort))
	if err != nil {
		say("start", err)
		return 2
	}
	if words.Redis != "" {
		pooled, err := net.DialTimeout("tcp", words.Redis, patience)
		if err != nil {
			say("start", err)
			return 2
		}
		defer pooled.Close()
	}
	server := &http.Server{Handler: http.HandlerFunc(answerAfter)}
	go func() { _ = server.Serve(ln) }()
	say("serving", nil)
	<-signals
	say("SIGTERM", nil)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	good := say("server ended", server.Shutdown(ctx))
	<-time.After(words.Pause) // an app that takes its time; nothing is waited for
	if words.Redis != "" {
		_, err := redisCommands(nil, words.Redis, fmt.Sprintf("SET offset %d", words.Round))
		good = say("offset", err) && good
		_, err = redisCommands(nil, words.Redis, "MULTI", "INCR commits", fmt.Sprintf("RPUSH rounds %d", words.Round), "EXEC")
		good = say("transaction", err) && good
	}
	if words.HTTP != "" {
		good = say("http", post(words.HTTP)) && good
	}
	if !good {
		return 1
	}
	return 0
}

// answerAfter answers after the query's duration.
func answerAfter(w http.ResponseWriter, r *http.Request) {
	if d, err := time.ParseDuration(r.URL.Query().Get("after")); err == nil {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
	}
	fmt.Fprint(w, "answered")
}

func post(url string) error {
	resp, err := (&http.Client{Timeout: 5 * time.Second}).Post(url, "text/plain", strings.NewReader("bye"))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// world is the server to which the app connects, in the client's namespace.
type world struct {
	words lastWords
	at    *nettest.Namespace

	mu    sync.Mutex // guards posts
	posts int
}

// newWorld starts an HTTP service and, unless it is alone, Redis.
func (p *pod) newWorld(isAlone bool) *world {
	w := &world{at: p.Client}
	if !isAlone {
		w.words.Redis = startRedis(p.t, p.Client)
	}
	ln := p.Client.Listen(p.t, "tcp", p.Client.TCP4(80))
	nettest.Serve(p.t, ln, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.posts++
	}))
	w.words.HTTP = "http://" + ln.Addr().String() + "/bye"
	return w
}

// got is how many rounds' words each of them has.
func (w *world) got(t *testing.T) (redis, posts int) {
	t.Helper()
	w.mu.Lock()
	posts = w.posts
	w.mu.Unlock()
	return redisLength(t, w.at, w.words.Redis, "rounds"), posts
}
