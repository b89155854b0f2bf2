package eventstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

const (
	chunkEvent     = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a \"}{[, type"}}]}` + "\n\n"
	messageStart   = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"type\":\"message\",\"id\":\"m\"}}\n\n"
	contentDelta   = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0}\n\n"
	responseBegins = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0}\n\n"
	responseDelta  = "event: response.output_text.delta\ndata: {\"sequence_number\": 41 ,\"type\":\"response.output_text.delta\"}\n\n"

	geminiChunk = "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"w\"}]}}],\"modelVersion\": \"fake\"}\r\n\r\n"
	ollamaLine  = `{"model":"m","created_at":"t","message":{"role":"assistant","content":"w"},"done":false}` + "\n"

	geminiError    = `data: {"error":{"code":503,"message":"the server is shutting down","status":"UNAVAILABLE"}}` + "\r\n\r\n"
	ollamaError    = `{"error":"the server is shutting down","model":"","message":{"role":"assistant","content":""},"response":"","done":false}` + "\n"
	openAIError    = `data: {"error":{"message":"the server is shutting down","type":"server_error","param":null,"code":"server_shutting_down"}}` + "\n\n"
	anthropicError = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"the server is shutting down\"}}\n\n"
	repliesError   = "event: error\ndata: {\"type\":\"error\",\"sequence_number\":42,\"code\":\"server_error\",\"message\":\"the server is shutting down\",\"param\":null,\"error\":{\"type\":\"server_error\",\"code\":\"server_error\",\"message\":\"the server is shutting down\",\"param\":null}}\n\n"
)

func TestEnding(t *testing.T) {
	proper, truncated := Ending{Proper: true}, Ending{Name: drain.EndingTruncated}
	failed := func(event string) Ending { return Ending{Name: drain.EndingErrorEvent, Last: []byte(event)} }
	for _, tt := range []struct {
		name, body string
		want       Ending
	}{
		{"nothing yet", "", truncated},
		{"events of no known dialect", "data: 1\n\nevent: progress\ndata: {\"type\":\"progress\"}\n\n", truncated},
		{"such events that sound like an end", "event: done\ndata: {\"type\":\"done\"}\n\nevent: error\ndata: {\"error\":\"of one of many\"}\n\n", truncated},

		{"OpenAI, in between tokens", chunkEvent + chunkEvent, failed(openAIError)},
		{"OpenAI, before a comment", chunkEvent + ": ping\n", failed(openAIError)},
		{"OpenAI, within a token", chunkEvent + chunkEvent[:40], truncated},
		{"OpenAI, at the end of a line", chunkEvent + strings.TrimSuffix(chunkEvent, "\n"), truncated},
		{"OpenAI, the finish reason alone", chunkEvent + `data: {"object":"chat.completion.chunk","choices":[{"finish_reason":"stop"}],"error":null}` + "\n\n", failed(openAIError)},
		{"OpenAI, whole", chunkEvent + "data: [DONE]\n\n", proper},
		{"OpenAI, the end not over", chunkEvent + "data: [DONE]\n", truncated},
		{"OpenAI, the app has failed", chunkEvent + `data: {"error":{"code":500}}` + "\n\n", proper},
		{"text completions", `data: {"object":"text_completion"}` + "\n\n", failed(openAIError)},
		{"its end within a text", chunkEvent + `data: "[DONE]"` + "\n\n" + chunkEvent, failed(openAIError)},
		{"the end, and something after it", chunkEvent + "data: [DONE]\n\n" + chunkEvent, failed(openAIError)},
		{"CRLF", strings.ReplaceAll(chunkEvent+"data: [DONE]\n\n", "\n", "\r\n"), proper},
		{"CR", strings.ReplaceAll(chunkEvent+"data: [DONE]\n\n", "\n", "\r"), proper},
		{"members in another order, space, several lines", "data:{ \"choices\" : [ {} ] ,\ndata: \"object\" : \"chat.completion.chunk\" }\n\n", failed(openAIError)},
		{"a name on a deeper level", `data: {"x":{"object":"chat.completion.chunk"}}` + "\n\n", truncated},
		{"a longer name", `data: {"object":"chat.completion.chunk.of.another.kind"}` + "\n\n", truncated},
		{"a list", `data: [{"object":"chat.completion.chunk"}]` + "\n\n", truncated},

		{"Anthropic", messageStart + contentDelta, failed(anthropicError)},
		{"Anthropic, whole", messageStart + contentDelta + "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", proper},
		{"Anthropic, the app has failed", messageStart + anthropicError, proper},

		{"Responses", responseBegins + responseDelta, failed(repliesError)},
		{"Responses, whole", responseBegins + "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{}}\n\n", proper},
		{"Responses, cut by its own limit", responseBegins + "data: {\"type\":\"response.incomplete\",\"response\":{}}\n\n", proper},

		{"Gemini", geminiChunk + geminiChunk, failed(geminiError)},
		{"Gemini, within a chunk", geminiChunk + geminiChunk[:30], truncated},
		{"Gemini, the app has failed", geminiChunk + geminiError, proper},
		{"other candidates", "data: {\"candidates\":[]}\n\n", truncated},

		{"MCP, a notification", "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}\n\n", truncated},
		{"MCP, a request of the server's", "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n", truncated},
		{"MCP, the response", "event: message\nid: 7\ndata: {\"result\":{\"content\":[{\"type\":\"text\"}]},\"jsonrpc\":\"2.0\",\"id\":1}\n\n", proper},
		{"MCP, an error", "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"a\",\"error\":{\"code\":-1}}\n\n", proper},
		{"A2A, one of many responses", "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"kind\":\"status-update\"}}\n\n", truncated},

		{"Ollama's lines", ollamaLine + ollamaLine, failed(ollamaError)},
		{"Ollama, within a line", ollamaLine + ollamaLine[:20], truncated},
		{"Ollama, whole", ollamaLine + `{"model":"m","created_at":"t","done":true}` + "\n", proper},
		{"Ollama, the app has failed", ollamaLine + ollamaError, proper},
		{"other lines", `{"done":false}` + "\n" + `{"model":1,"data: ":2}` + "\n\n", truncated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			media := Events
			if strings.HasPrefix(tt.body, "{") {
				media = JSONLines
			}
			for _, step := range []int{1, 2, 7, len(tt.body) + 1} {
				s := Follow(media, false)
				for part := range slices.Chunk([]byte(tt.body), step) {
					s.Follow(part)
				}
				got := s.Ending()
				if got.Proper != tt.want.Proper || got.Name != tt.want.Name || !bytes.Equal(got.Last, tt.want.Last) {
					t.Errorf("in pieces of %d bytes: %s %q, proper %v; want %s %q, %v", step, got.Name, got.Last, got.Proper, tt.want.Name, tt.want.Last, tt.want.Proper)
				}
			}
		})
	}
}

// What the error events carry is JSON.
func TestErrorEventsAreJSON(t *testing.T) {
	for _, event := range []string{openAIError, anthropicError, repliesError, geminiError} {
		data := event[strings.Index(event, "data: ")+len("data: "):]
		var body struct {
			Error struct{ Message string }
		}
		if err := json.Unmarshal([]byte(data), &body); err != nil || body.Error.Message != message {
			t.Errorf("%s: %v, %q", data, err, body.Error.Message)
		}
	}
}

// A stream that answers a GET ends in between two events, after a reconnection
// time that differs from client to client.
func TestSubscription(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		proper     bool
		from, to   int // milliseconds
	}{
		{"nothing yet", "", true, 1000, 3000},
		{"events", "id: 1\ndata: 1\n\n", true, 1000, 3000},
		{"comments", ": ping\n", true, 1000, 3000},
		{"a reconnection time of the app's", "retry: 40\n\ndata: 1\n\n", true, 40, 61},
		{"within an event", "data: 1\n\nid: 2\n", false, 0, 0},
		{"within a line", "data: 1\n\n:", false, 0, 0},
		{"an answer with an end of its own", chunkEvent, false, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen := map[int]bool{}
			for range 50 {
				s := Follow(Events, true)
				s.Follow([]byte(tt.body))
				got := s.Ending()
				if got.Proper != tt.proper {
					t.Fatalf("%+v", got)
				}
				if !tt.proper {
					return
				}
				match := regexp.MustCompile(`^retry: (\d+)\n\n$`).FindSubmatch(got.Last)
				if match == nil {
					t.Fatalf("%q", got.Last)
				}
				retry, _ := strconv.Atoi(string(match[1]))
				if retry < tt.from || retry >= tt.to {
					t.Fatalf("retry %d; want %d to %d", retry, tt.from, tt.to)
				}
				seen[retry] = true
			}
			if len(seen) < 2 {
				t.Error("it is the same for all clients")
			}
		})
	}
}

// Where many streams end at once, their clients return over a longer time.
func TestSpreadRetries(t *testing.T) {
	for _, tt := range []struct {
		body        string
		from, to    int // milliseconds
		mostQuarter int // of 400 times, in each quarter of the range
	}{
		{"data: 1\n\n", 1000, 10_000, 150},
		{"retry: 40\n\ndata: 1\n\n", 40, 9041, 150},
		{"retry: 40000\n\ndata: 1\n\n", 40_000, 60_001, 150},
	} {
		quarters := map[int]int{}
		for range 400 {
			s := Follow(Events, true)
			s.Follow([]byte(tt.body))
			s.SpreadRetries(9 * time.Second)
			var retry int
			if _, err := fmt.Sscanf(string(s.Ending().Last), "retry: %d", &retry); err != nil || retry < tt.from || retry >= tt.to {
				t.Fatalf("%q: retry %d, %v; want %d to %d", tt.body, retry, err, tt.from, tt.to)
			}
			quarters[4*(retry-tt.from)/(tt.to-tt.from)]++
		}
		for quarter, n := range quarters {
			if n > tt.mostQuarter {
				t.Errorf("%q: %d of 400 in quarter %d", tt.body, n, quarter)
			}
		}
	}
}

func TestIs(t *testing.T) {
	for contentType, want := range map[string]bool{
		"text/event-stream": true, "Text/Event-Stream ; charset=utf-8": true, "text/event-stream2": false, "application/json": false, "": false,
	} {
		if got := MediaOf([]byte(contentType), true) == Events; got != want {
			t.Errorf("%q: %v", contentType, !want)
		}
	}
}

// Whatever a body holds, following it in pieces comes to the same as in one, and a
// stream that is ended properly has had its terminal event or is reconnected to.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{chunkEvent + "data: [DONE]\n\n", messageStart + contentDelta, responseBegins, "retry: 99999999999999999999\r\r", "data\n\n:\ndata:{\"error\":\"\\\"\"}}\n\n"} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, step uint8) {
		whole, pieces := Follow(Events, false), Follow(Events, false)
		whole.Follow(body)
		for part := range slices.Chunk(body, int(step)+1) {
			pieces.Follow(part)
		}
		a, b := whole.Ending(), pieces.Ending()
		if fmt.Sprintf("%q", a.Last) != fmt.Sprintf("%q", b.Last) || a.Name != b.Name || a.Proper != b.Proper {
			t.Fatalf("%+v in one, %+v in pieces", a, b)
		}
		if a.Proper && !bytes.Contains(body, []byte("[DONE]")) && !bytes.Contains(body, []byte(`"`)) {
			t.Fatalf("%q is taken for complete", body)
		}
		if a.Last != nil {
			if whole.Follow(a.Last); !whole.BetweenEvents() || !whole.complete {
				t.Fatalf("%q is not the end of its dialect", a.Last)
			}
		}
	})
}
