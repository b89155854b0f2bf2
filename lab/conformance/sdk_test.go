package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
)

func sdkPython(t *testing.T, args ...string) *exec.Cmd {
	command := python(t, args...)
	command.Args[1] = "testdata/sdk.py"
	command.Env = append(os.Environ(), "PYTHONPATH="+pythonPackages(t), "PYTHONUNBUFFERED=1")
	return command
}

func sdkNode(t *testing.T, args ...string) *exec.Cmd {
	command := node(t, args...)
	command.Args[1] = "testdata/node/sdk.js"
	return command
}

// library is a client library, and what its users' code gets.
type library struct {
	name    string
	program program
	kind    string
	raises  string // the error; "": none, because the library asks again
}

// libraries are those that ask model servers and MCP servers, and what their users' code
// gets when the pod makes its last call in the middle of the answer.
var libraries = []library{
	{"openai Python", sdkPython, "openai", `^openai\.APIError: the server is shutting down$`},
	{"openai Python Responses", sdkPython, "openai-responses", `^openai\.APIError: the server is shutting down$`},
	{"anthropic Python", sdkPython, "anthropic", `^anthropic\.APIStatusError: .*overloaded_error.*the server is shutting down`},
	{"google-genai Python", sdkPython, "gemini", `^google\.genai\.errors\.ServerError: 503 UNAVAILABLE.*the server is shutting down`},
	{"ollama Python", sdkPython, "ollama", `^ollama\._types\.ResponseError: the server is shutting down`},
	{"litellm from OpenAI", sdkPython, "litellm-openai", `^litellm\.exceptions\.MidStreamFallbackError: .*the server is shutting down`},
	{"litellm from Anthropic", sdkPython, "litellm-anthropic", `^litellm\.exceptions\.MidStreamFallbackError: .*the server is shutting down`},
	{"litellm from Ollama", sdkPython, "litellm-ollama", `MidStreamFallbackError: `},
	{"langchain-openai", sdkPython, "langchain-openai", `^openai\.APIError: the server is shutting down$`},
	{"langchain-anthropic", sdkPython, "langchain-anthropic", `^anthropic\.APIStatusError: .*the server is shutting down`},
	{"ai (Vercel)", sdkNode, "ai", `the server is shutting down`},
	{"ai (Vercel) Responses", sdkNode, "ai-responses", `the server is shutting down`},
	{"openai Node", sdkNode, "openai", `^APIError: the server is shutting down$`},
	{"openai Node Responses", sdkNode, "openai-responses", `^APIError: the server is shutting down$`},
	{"MCP Python", sdkPython, "mcp", `MCPError: SSE stream ended without a response$`},
	{"MCP Python resumable", sdkPython, "mcp-resumable", ""},
	{"MCP TypeScript", sdkNode, "mcp", `^McpError: .*timed out`},
	{"MCP TypeScript resumable", sdkNode, "mcp-resumable", ""},
	{"openai Python HTTP/2", sdkPython, "openai-h2", `^openai\.APIError: the server is shutting down$`},
	{"openai Python Responses HTTP/2", sdkPython, "openai-responses-h2", `^openai\.APIError: the server is shutting down$`},
	{"anthropic Python HTTP/2", sdkPython, "anthropic-h2", `^anthropic\.APIStatusError: .*overloaded_error.*the server is shutting down`},
	{"google-genai Python HTTP/2", sdkPython, "gemini-h2", `^google\.genai\.errors\.ServerError: 503 UNAVAILABLE.*the server is shutting down`},
	{"ollama Python HTTP/2", sdkPython, "ollama-h2", `^ollama\._types\.ResponseError: the server is shutting down`},
	{"eventsource Node", sdkNode, "eventsource", ""},
}

// sdkResult is the last output of a script.
type sdkResult struct {
	Words      int
	Error, End string
	Events     []string
}

// isAnswer reports whether it reads an answer of a model: neither MCP's nor EventSource's.
func (l library) isAnswer() bool { return l.kind != "eventsource" && !strings.HasPrefix(l.kind, "mcp") }

// An answer in flight is waited for, also with --event-streams close: it is whole, and the verdict clean. A
// subscription of a real EventSource ends before the last call then, and resumes at the other pod: each event once.
//
// No library takes half an answer for a whole: the pod, or a proxy before it, makes its last call in the middle of the
// answer, and the user's code gets an error, or the library asks again and gets the rest. One process does all of a
// library, because some take ten seconds of a processor to load.
func TestLibraries(t *testing.T) {
	proxied := []string{"openai", "anthropic", "ai", "openai-h2", "anthropic-h2"}
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			client := startSDK(t, l.program, l.kind)
			if l.isAnswer() || l.kind == "eventsource" {
				t.Run("across a drain", func(t *testing.T) { l.acrossADrain(t, client) })
			}
			isProxied := slices.Contains(proxied, l.kind)
			for _, way := range []struct {
				name    string
				proxy   bool // the client connects to it
				ofProxy bool // it is the one that ends
				does    bool
			}{
				{"the agent", false, false, true},
				{"the agent behind a proxy", true, false, isProxied || l.kind == "eventsource"},
				{"a proxy with package lastcall", true, true, isProxied}, // there is no second proxy for EventSource to ask again
			} {
				if way.does {
					t.Run("last call of "+way.name, func(t *testing.T) { l.atTheLastCall(t, client, way.proxy, way.ofProxy) })
				}
			}
		})
	}
}

func (l library) acrossADrain(t *testing.T, client *sdk) {
	m := newModel()
	s := startService(t, m.app)
	client.begin(t, "http://"+s.plain)
	if l.isAnswer() {
		ending := time.AfterFunc(slowWork, func() { close(m.end) })
		defer ending.Stop()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	began := time.Now()
	r, err := s.roll(ctx)
	if err != nil || r.Verdict != "clean" || len(r.Open)+len(r.Faults) > 0 {
		t.Errorf("the pod's report: %s, %s, %v; %v", r.Verdict, r.Open, r.Faults, err)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("the pod is gone after %v", took)
	}
	got := client.result(t)
	t.Logf("%d words, then %q %q", got.Words, got.Error, got.End)
	if got.Error != "" || l.isAnswer() && !slices.Contains([]string{"stop", "end_turn", "response.completed", "STOP"}, got.End) {
		t.Errorf("%+v", got)
	}
	if !l.isAnswer() {
		m.checkEvents(t, got, began)
	}
}

func (l library) atTheLastCall(t *testing.T, client *sdk, isBehindProxy, ofProxy bool) {
	m := newModel()
	s := startService(t, m.app)
	url := "http://" + s.plain
	var p *proxy
	if isBehindProxy {
		p = startProxy(t, s.old.addr(t))
		url = p.url
	}
	client.begin(t, url)
	ended := time.Now()
	if ofProxy {
		p.cut()
	} else {
		if isBehindProxy {
			p.to(s.young.addr(t))
		}
		s.switched.Store(true)
		r, at := s.cut(t)
		ended = at
		wants, endings := "cut", 1
		if l.kind == "eventsource" {
			wants, endings = "clean", 0
		}
		if r.Verdict != wants || len(r.Open) != endings || len(r.Faults) > 0 {
			t.Errorf("the pod's report: %s, %s, %v; want %s, %d open", r.Verdict, r.Open, r.Faults, wants, endings)
		}
	}
	got := client.result(t)
	switch want := l.raises; {
	case want != "" && (got.Error == "" || !regexp.MustCompile(want).MatchString(got.Error)):
		t.Errorf("after %d words, which are no whole, the user's code gets %q, %q; want %s", got.Words, got.Error, got.End, want)
	case want == "" && (got.Error != "" || !slices.Contains([]string{"done", "end"}, got.End)):
		t.Errorf("the user's code gets %q, %q; want the rest from the other pod", got.Error, got.End)
	}
	if l.kind == "eventsource" {
		m.checkEvents(t, got, ended)
	}
	t.Logf("%d words, then %q %q", got.Words, got.Error, got.End)
}

// checkEvents looks at what EventSource has got of both pods' events: each once, in order,
// and not at once.
func (m *model) checkEvents(t *testing.T, got sdkResult, ended time.Time) {
	last, came, resumeAt := m.progress()
	for i, e := range got.Events {
		if e != fmt.Sprintf("e%d", i+1) {
			t.Errorf("event %d is %s", i+1, e)
		}
	}
	if resumeAt == "" || len(got.Events) < 5+3 || resumeAt != fmt.Sprint(len(got.Events)-3) {
		t.Errorf("Last-Event-ID %q, %d events; the old pod has sent %d", resumeAt, len(got.Events), last)
	}
	if pause := came.Sub(ended); pause < time.Second {
		t.Errorf("it is back after %v", pause)
	}
}

// cut terminates the old pod and has it make its last call at once, at the time that it returns.
func (s *service) cut(t *testing.T) (podReport, time.Time) {
	t.Helper()
	terminate := func() {
		must.Do(t, s.old.command.Process.Signal(syscall.SIGTERM))
	}
	terminate()
	polltest.Eventually(t, "the drain has begun", func() bool { return s.old.hasLogged("Agent draining Proxy") })
	time.Sleep(1100 * time.Millisecond) // a signal in the first second would be the same one: drain.Requests
	ended := time.Now()
	terminate()
	select {
	case <-s.old.ended:
	case <-time.After(patience):
		t.Fatal("the old pod has not ended")
	}
	close(s.gone)
	r, err := s.old.report()
	if err != nil {
		t.Error(err)
	}
	return r, ended
}

// sdk is a script that runs, for one stream after another.
type sdk struct {
	in     io.WriteCloser
	lines  chan string
	output logstest.Buffer // on standard error
}

func startSDK(t *testing.T, program program, kind string) *sdk {
	t.Helper()
	command := program(t, kind)
	s := &sdk{lines: make(chan string, 8)}
	command.Stderr = &s.output
	out, err := command.StdoutPipe()
	must.Do(t, err)
	if s.in, err = command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	must.Do(t, command.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			select {
			case s.lines <- lines.Text():
			default: // the test has failed, and reads no more
			}
		}
		close(s.lines)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-read
		_ = command.Wait()
	})
	return s
}

// begin sends the script a URL, and returns when it has got the beginning of the stream.
func (s *sdk) begin(t *testing.T, url string) {
	t.Helper()
	if _, err := fmt.Fprintln(s.in, url); err != nil {
		t.Fatalf("%v\n%s", err, &s.output)
	}
	if line := s.line(t); line != "begun" {
		t.Fatalf("the client says %q\n%s", line, &s.output)
	}
}

func (s *sdk) line(t *testing.T) string {
	t.Helper()
	select {
	case line := <-s.lines:
		return line
	case <-time.After(4 * patience): // a busy machine loads some of the libraries for half a minute
		t.Fatalf("the client says nothing\n%s", &s.output)
		return ""
	}
}

func (s *sdk) result(t *testing.T) (got sdkResult) {
	t.Helper()
	line := s.line(t)
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Fatalf("the client says %q: %v\n%s", line, err, &s.output)
	}
	return got
}
