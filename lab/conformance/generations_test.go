package conformance

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
)

var (
	minute   = flag.Duration("minute", time.Second, "TestGenerations: how long a minute of its streams takes")
	rollouts = flag.Int("rollouts", 1, "TestGenerations: rollouts of each kind")
	inTurn   = flag.Int("at-once", 25, "TestGenerations: rollouts of a kind at the same time")
)

const (
	perRollout = 20 // streams
	lateOnes   = 2  // of them begin after the SIGTERM, before the load balancer has learned of it

	// graceMinutes is less than the longest streams have left, so that the last call meets some of them.
	graceMinutes = 8

	// lastCallMargin is LASTCALL_LAST_CALL_MARGIN, in seconds before SIGKILL.
	lastCallMargin = 2 * time.Second
)

// generationPaths are the dialects of the streams, in turn.
var generationPaths = []string{
	"/v1/chat/completions", "/v1/messages", "/v1/models/fake:streamGenerateContent", "/api/chat", "/v1/responses",
}

// Responses of models that take 1 to 10 minutes, 20 on each pod that is terminated, half of them over HTTP/1.1 and half
// over HTTP/2 in five dialects. With lastcall none is cut before the last call, and what the last call meets ends with
// an error event. None is short without an error. The table has the same pods without lastcall.
//
// By default a minute takes a second, and there is one rollout. The figure of BENCHMARKS.md:
//
//	go test ./conformance -run TestGenerations -minute 1m -rollouts 50 -timeout 1h -v
func TestGenerations(t *testing.T) {
	kinds := []struct {
		name  string
		grace time.Duration
		args  func(address string) []string
	}{
		{"as it is, the server exits at SIGTERM", *minute / 2, func(address string) []string {
			return asItIs(address, "exits")
		}},
		{"as it is, the server finishes its requests", *minute / 2, func(address string) []string {
			return asItIs(address, "finishes")
		}},
		{"without lastcall, the server finishes its requests", graceMinutes * *minute, func(address string) []string {
			return asItIs(address, "finishes")
		}},
		{"lastcall", graceMinutes * *minute, func(address string) []string {
			return withLastcall(t, address, "exits")
		}},
	}
	buildAgent(t)
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			all := terminated{grace: kind.grace}
			turns := make(chan struct{}, *inTurn)
			var running sync.WaitGroup
			for range *rollouts {
				turns <- struct{}{}
				running.Go(func() {
					defer func() { <-turns }()
					address := freeAddr(t).String()
					r := &rollout{t: t, grace: kind.grace, paths: generationPaths}
					after := r.run(kind.args(address), address)
					mu.Lock()
					defer mu.Unlock()
					all.streams, all.gone = append(all.streams, r.streams...), append(all.gone, after)
				})
			}
			running.Wait()
			isOurs := kind.name == "lastcall"
			for _, g := range all.streams {
				switch {
				case g.outcome == "complete", !isOurs && g.outcome != "silently short":
				case g.outcome == "error event" && g.ended >= kind.grace-lastCallMargin:
				default:
					t.Errorf("%s over %s, %v after SIGTERM: %s, %s", g.path, g.protocol, g.ended, g.outcome, g.detail)
				}
			}
			t.Logf("| %s | %v | %s", kind.name, kind.grace, all.row())
		})
	}
}

// terminated are the streams of pods that have been terminated.
type terminated struct {
	grace   time.Duration
	streams []generation
	gone    []time.Duration // how long after SIGTERM the pods were
}

// row counts the streams: all, complete, with an error event, truncated, without a response, silently short; those that
// were cut before the last call; when the pods were gone.
func (all *terminated) row() string {
	counts := map[string]int{}
	early := 0
	for _, g := range all.streams {
		counts[g.outcome]++
		if g.outcome != "complete" && g.ended < all.grace-lastCallMargin {
			early++
		}
	}
	slices.Sort(all.gone)
	return fmt.Sprintf("%d | %d | %d | %d | %d | %d | %d | %.1f to %.1f s |", len(all.streams), counts["complete"],
		counts["error event"], counts["truncated"], counts["no response"], counts["silently short"], early,
		all.gone[0].Seconds(), all.gone[len(all.gone)-1].Seconds())
}

// asItIs is the command line of a model server.
func asItIs(address, atSIGTERM string) []string {
	return []string{os.Args[0], modelProgram, address, atSIGTERM, generationPace().String()}
}

// withLastcall is the command line of a model server behind lastcall.
func withLastcall(t *testing.T, address, atSIGTERM string) []string {
	return append([]string{buildAgent(t), "run", "--inbound", address + "=127.0.0.1:0", "--status-address", "127.0.0.1",
		"--status-port", fmt.Sprint(freeAddr(t).Port), "--"}, asItIs("127.0.0.1:{port}", atSIGTERM)...)
}

// rollout is the termination of one pod that serves streams.
type rollout struct {
	t     *testing.T
	grace time.Duration
	paths []string // of the streams, in turn

	streams    []generation
	terminated time.Time
}

// generation is a client's part of one stream.
type generation struct {
	path, protocol string
	outcome        string        // complete, error event, truncated, no response or silently short
	detail         string        // the error
	ended          time.Duration // after SIGTERM
}

// run starts the pod, its streams, and terminates it as a kubelet does. It returns how long after SIGTERM the pod was
// gone.
func (r *rollout) run(args []string, address string) (gone time.Duration) {
	t := r.t
	var output logstest.Buffer
	pod := exec.Command(args[0], args[1:]...)
	pod.Env = append(os.Environ(), "TERMINATION_GRACE_PERIOD_SECONDS="+strconv.Itoa(int(r.grace/time.Second)))
	if *minute < time.Minute {
		pod.Env = append(pod.Env, "MINIMUM_DRAIN_DURATION=1s", "LASTCALL_QUIET_TIME=200ms", "LASTCALL_IDLE_GRACE=200ms")
	}
	pod.Stdout, pod.Stderr = &output, &output
	pod.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // SIGKILL is for all of it
	if err := pod.Start(); err != nil {
		t.Error(err)
		return 0
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = pod.Wait() }()
	defer func() {
		_ = syscall.Kill(-pod.Process.Pid, syscall.SIGKILL)
		<-ended
		if t.Failed() {
			t.Logf("output of the pod:\n%s", &output)
		}
	}()
	awaitListener(t, address, ended, &output)
	polltest.Eventually(t, "the pod is ready", func() bool {
		resp, err := http.Get("http://" + address)
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusNotFound
	})

	h1, h2 := &http.Transport{Protocols: new(http.Protocols)}, &http.Transport{Protocols: new(http.Protocols)}
	h1.Protocols.SetHTTP1(true)
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h1.CloseIdleConnections()
	defer h2.CloseIdleConnections()
	r.streams = make([]generation, perRollout)
	var begun, all sync.WaitGroup
	terminated := make(chan struct{})
	for i := range perRollout {
		g, transport, protocol := &r.streams[i], h1, "HTTP/1.1"
		if i%2 == 1 {
			transport, protocol = h2, "HTTP/2"
		}
		g.path, g.protocol = r.paths[i/2%len(r.paths)], protocol
		length := *minute + 9**minute*time.Duration(i)/(perRollout-1)
		if i%5 == 4 { // the lengths of each dialect are as long as those of the others
			length = *minute + rand.N(9**minute)
		}
		isLate := i < lateOnes
		if !isLate {
			begun.Add(1)
		}
		all.Go(func() {
			wait := time.NewTimer(rand.N(*minute / 2)) // clients come when they like
			defer wait.Stop()
			first := sync.OnceFunc(begun.Done)
			if isLate {
				<-terminated
				wait.Reset(*minute / 60)
				first = func() {}
			}
			<-wait.C
			g.read(transport, "http://"+address, length, first)
			first()
			<-terminated
			g.ended = time.Since(r.terminated)
		})
	}
	begun.Wait()
	r.terminated = time.Now()
	if err := pod.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	close(terminated)
	select {
	case <-ended:
	case <-time.After(r.grace):
		_ = syscall.Kill(-pod.Process.Pid, syscall.SIGKILL)
		<-ended
	}
	gone = time.Since(r.terminated)
	all.Wait()
	return gone
}

// read requests a stream of a length and reads it to its end.
func (g *generation) read(transport *http.Transport, url string, length time.Duration, begun func()) {
	words := int(length / generationPace())
	url += fmt.Sprintf("%s?words=%d", g.path, words)
	ctx, cancel := context.WithTimeout(context.Background(), length+patience)
	defer cancel()
	resp, err := sendOnce(ctx, transport.RoundTrip, http.MethodPost, url, "{}")
	if err != nil {
		g.outcome, g.detail = "no response", err.Error()
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		g.outcome, g.detail = "no response", resp.Status
		return
	}
	in := bufio.NewReader(resp.Body)
	next, isFailed, tail := 1, false, ""
	for err == nil {
		var line string
		line, err = in.ReadString('\n')
		switch {
		case strings.Contains(line, fmt.Sprintf("w%d ", next)):
			next++
			begun()
		case strings.Contains(line, "the server is shutting down") && strings.HasSuffix(line, "\n"):
			isFailed = true
		}
		if tail += line; len(tail) > 4096 {
			tail = tail[len(tail)-4096:]
		}
	}
	g.detail = fmt.Sprintf("%d of %d words, %v", next-1, words, err)
	switch isWhole := next > words && strings.HasSuffix(tail, answers[g.path].after); {
	case isWhole && errors.Is(err, io.EOF):
		g.outcome = "complete"
	case isFailed:
		g.outcome = "error event"
	case errors.Is(err, io.EOF):
		g.outcome = "silently short"
	default:
		g.outcome = "truncated"
	}
}

// generationPace is the time between two words.
func generationPace() time.Duration { return max(*minute/60, 50*time.Millisecond) }
