package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// modelServers are servers of language models as they end at SIGTERM with their default settings, by the source named.
var modelServers = []struct {
	name, version, path string // version: the commit or pull request of the source
	atSIGTERM           string // of runModelProgram
	source              string
}{
	{"vLLM", "PR 36666", "/v1/chat/completions", "exits",
		"vllm-project/vllm: --shutdown-timeout is 0, so requests in flight are aborted at SIGTERM"},
	{"SGLang", "001067f", "/v1/chat/completions", "serves",
		"sgl-project/sglang python/sglang/srt/managers/tokenizer_manager.py sigterm_watchdog: /health is 503, requests are " +
			"still accepted, it exits when none is in flight and looks every 5 s"},
	{"TGI", "009c4e0", "/v1/chat/completions", "finishes:90s",
		"huggingface/text-generation-inference launcher/src/main.rs: its web server has 90 s for requests in flight"},
	{"llama.cpp", "00dd081", "/v1/chat/completions", "stalls",
		"ggml-org/llama.cpp tools/server/server.cpp, server-queue.cpp: SIGTERM ends the loop that generates; the stream waits " +
			"for a token until its client leaves"},
	{"Ollama", "0018813", "/api/chat", "exits",
		"ollama/ollama server/routes.go: http.Server.Close at SIGTERM"},
	{"KServe", "0136c9a", "/v1/chat/completions", "finishes:30s",
		"kserve/kserve python/kserve/kserve/protocol/rest/server.py: uvicorn with timeout_graceful_shutdown of 30 s"},
	{"Triton", "01f2fe4", "/v2/models/fake/generate_stream", "finishes:30s",
		"triton-inference-server/server src/main.cc: endpoints stop, --exit-timeout-secs is 30 s"},
	{"LiteLLM", "PR 29439", "/v1/messages", "finishes:30s",
		"BerriAI/litellm, BerriAI/litellm-docs pull request 271: GRACEFUL_SHUTDOWN_TIMEOUT is 30 s; before, issue 14334"},
}

// Servers of language models, as they are with Kubernetes' 30 s, and with lastcall and a grace period for the longest
// response: then no stream is lost, whatever the server does at SIGTERM.
func TestModelServers(t *testing.T) {
	buildAgent(t)
	const longest = 12 // minutes
	for _, s := range modelServers {
		for _, isOurs := range []bool{false, true} {
			name, grace := s.name+" as it is", *minute/2
			if isOurs {
				name, grace = s.name+" with lastcall", longest**minute
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				address := freeAddr(t).String()
				args := asItIs(address, scaled(s.atSIGTERM))
				if isOurs {
					args = withLastcall(t, address, scaled(s.atSIGTERM))
				}
				r := &rollout{t: t, grace: grace, paths: []string{s.path}}
				gone := r.run(args, address)
				all := terminated{grace: grace, streams: r.streams, gone: []time.Duration{gone}}
				for _, g := range r.streams {
					if isOurs && g.outcome != "complete" {
						t.Errorf("%s over %s, %v after SIGTERM: %s, %s", g.path, g.protocol, g.ended, g.outcome, g.detail)
					}
				}
				t.Logf("| %s | %s | %s", name, s.atSIGTERM, all.row())
			})
		}
	}
}

// scaled makes a time limit as much shorter as the minutes of the streams are.
func scaled(atSIGTERM string) string {
	what, text, has := strings.Cut(atSIGTERM, ":")
	limit, err := time.ParseDuration(text)
	if !has || err != nil {
		return atSIGTERM
	}
	return what + ":" + time.Duration(limit.Minutes()*float64(*minute)).String()
}

// modelProgram is the argument by which this program is a model server: a process of its own, which signals end.
const modelProgram = "model-server"

// runModelProgram serves on an address, a word in each pace. At SIGTERM it
//
//	exits            at once
//	finishes[:LIMIT] closes its listener, and exits when no request is in flight, or after the limit
//	serves           continues, and exits when no request is in flight
//	stalls           keeps its connections, sends no further word, and exits when its clients have left
func runModelProgram(address, atSIGTERM string, pace time.Duration) error {
	what, text, _ := strings.Cut(atSIGTERM, ":")
	terminated, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if what == "exits" {
		stop()
		terminated = context.Background()
	}
	var open atomic.Int64
	mux := http.NewServeMux()
	handleAnswers(mux, func(w http.ResponseWriter, r *http.Request, word func(n int) string) bool {
		words, _ := strconv.Atoi(r.URL.Query().Get("words"))
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for n := 1; n <= words; n++ {
			if what == "stalls" && terminated.Err() != nil {
				<-r.Context().Done()
				return false
			}
			say(w, word(n))
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return false
			}
		}
		return true
	})
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Add(-1)
		mux.ServeHTTP(w, r)
	})
	server := &http.Server{Addr: address, Handler: counted, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() {
		<-terminated.Done()
		switch what {
		case "finishes":
			if limit, err := time.ParseDuration(text); err == nil {
				time.AfterFunc(limit, func() { os.Exit(0) })
			}
			_ = server.Shutdown(context.Background())
			os.Exit(0)
		case "serves", "stalls":
			for ; open.Load() > 0; time.Sleep(5 * pace) { // it looks now and then, as SGLang does
			}
			os.Exit(0)
		}
	}()
	err := server.ListenAndServe()
	if errors.Is(err, http.ErrServerClosed) {
		select {} // until the requests have ended
	}
	return fmt.Errorf("serve on %s: %w", address, err)
}
