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
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
)

func sdkPython(t *testing.T, kind, url string) *exec.Cmd {
	command := python(t, kind, url)
	command.Args[1] = "testdata/sdk.py"
	command.Env = append(os.Environ(), "PYTHONPATH="+pythonPackages(t), "PYTHONUNBUFFERED=1")
	return command
}

func sdkNode(t *testing.T, kind, url string) *exec.Cmd {
	command := node(t, kind, url)
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

// ofKinds are the libraries of some kinds, each of which must exist.
func ofKinds(t *testing.T, kinds ...string) (found []library) {
	t.Helper()
	for _, kind := range kinds {
		before := len(found)
		for _, l := range libraries {
			if l.kind == kind {
				found = append(found, l)
			}
		}
		if len(found) == before {
			t.Fatalf("no library is of kind %s", kind)
		}
	}
	return found
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

// sdkResult is what a script prints at last.
type sdkResult struct {
	Words      int
	Error, End string
	Events     []string
}

// No client library takes half an answer for a whole: the pod, or a proxy before it,
// makes its last call in the middle of the answer, and the user's code gets an error, or
// the library asks again and gets the rest.
func TestLibrariesAtTheLastCall(t *testing.T) {
	behindProxy := ofKinds(t, "openai", "anthropic", "ai", "openai-h2", "anthropic-h2")
	for _, way := range []struct {
		name      string
		libraries []library
		proxy     bool // the client connects to it
		ofProxy   bool // it is the one that ends
	}{
		{"the agent", libraries, false, false},
		{"the agent behind a proxy", append(ofKinds(t, "eventsource"), behindProxy...), true, false},
		{"a proxy with package lastcall", behindProxy, true, true}, // there is no second proxy for EventSource to ask again
	} {
		for _, tt := range way.libraries {
			t.Run(way.name+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				m := newModel()
				s := startService(t, m.app)
				url := "http://" + s.plain
				var p *proxy
				if way.proxy {
					p = startProxy(t, s.old.addr(t))
					url = p.url
				}
				client := startSDK(t, tt.program, tt.kind, url)
				ended := time.Now()
				switch {
				case way.ofProxy:
					p.cut()
				case way.proxy:
					p.to(s.young.addr(t))
					fallthrough
				default:
					s.switched.Store(true)
					r := s.cut(t)
					wants, endings := "cut", 1
					if tt.kind == "eventsource" {
						wants, endings = "clean", 0
					}
					if r.Verdict != wants || len(r.Open) != endings || len(r.Faults) > 0 {
						t.Errorf("the pod's report: %s, %s, %v; want %s, %d open", r.Verdict, r.Open, r.Faults, wants, endings)
					}
				}
				got := client.result(t)
				want := tt.raises
				switch {
				case want != "" && (got.Error == "" || !regexp.MustCompile(want).MatchString(got.Error)):
					t.Errorf("after %d words, which are no whole, the user's code gets %q, %q; want %s", got.Words, got.Error, got.End, want)
				case want == "" && (got.Error != "" || !slices.Contains([]string{"done", "end"}, got.End)):
					t.Errorf("the user's code gets %q, %q; want the rest from the other pod", got.Error, got.End)
				}
				if tt.kind == "eventsource" {
					m.checkEvents(t, got, ended)
				}
				t.Logf("%d words, then %q %q", got.Words, got.Error, got.End)
			})
		}
	}
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

// An answer in flight is waited for, also with --event-streams close: it is whole, and the
// verdict clean.
func TestAnswersAcrossADrain(t *testing.T) {
	for _, tt := range ofKinds(t, "openai", "openai-responses", "anthropic", "gemini", "ollama", "litellm-openai",
		"litellm-anthropic", "litellm-ollama", "langchain-openai", "langchain-anthropic", "ai", "ai-responses", "openai-h2", "openai-responses-h2", "anthropic-h2", "gemini-h2", "ollama-h2") {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newModel()
			s := startService(t, m.app)
			client := startSDK(t, tt.program, tt.kind, "http://"+s.plain)
			ending := time.AfterFunc(slowWork, func() { close(m.end) })
			defer ending.Stop()
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			r, err := s.roll(ctx)
			if err != nil || r.Verdict != "clean" || len(r.Open)+len(r.Faults) > 0 {
				t.Errorf("the pod's report: %s, %s, %v; %v", r.Verdict, r.Open, r.Faults, err)
			}
			got := client.result(t)
			t.Logf("%d words, then %q %q", got.Words, got.Error, got.End)
			if got.Error != "" || !slices.Contains([]string{"stop", "end_turn", "response.completed", "STOP"}, got.End) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// With --event-streams close a subscription of a real EventSource ends before the last call, and resumes at the other pod:
// each event once, and a clean verdict.
func TestSubscriptionsAcrossADrain(t *testing.T) {
	for _, tt := range ofKinds(t, "eventsource") {
		t.Run(tt.name, func(t *testing.T) {
			m := newModel()
			s := startService(t, m.app)
			client := startSDK(t, tt.program, tt.kind, "http://"+s.plain)
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
			if got.Error != "" {
				t.Errorf("%+v", got)
			}
			m.checkEvents(t, got, began)
		})
	}
}

// cut terminates the old pod and has it make its last call at once.
func (s *service) cut(t *testing.T) podReport {
	t.Helper()
	for range 2 {
		if err := s.old.command.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		// The second is another one only when the first has been heard.
		polltest.Eventually(t, "the drain has begun", func() bool { return s.old.hasLogged("Agent draining Proxy") })
	}
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
	return r
}

// sdk is a script that runs.
type sdk struct {
	command *exec.Cmd
	lines   chan string
	output  logstest.Buffer // on standard error
}

// startSDK starts a script, and returns when it has got the beginning of the answer.
func startSDK(t *testing.T, program program, kind, url string) *sdk {
	t.Helper()
	command := program(t, kind, url)
	s := &sdk{command: command, lines: make(chan string, 2)} // it says no more than two
	command.Stderr = &s.output
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(s.lines)
		lines := bufio.NewScanner(out)
		for range cap(s.lines) {
			if !lines.Scan() {
				break
			}
			s.lines <- lines.Text()
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-read
		_ = command.Wait()
	})
	if line := s.line(t); line != "begun" {
		t.Fatalf("the client says %q\n%s", line, &s.output)
	}
	return s
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
