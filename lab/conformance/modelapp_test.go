package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// model is the state of a service's apps about the one client that asks it: a model
// server with the endpoints of OpenAI, Anthropic, Gemini and Ollama, an MCP server, and events
// for EventSource. The old pod's answers do not end before the client has lost its
// connection, or end is closed; the young pod's are short.
type model struct {
	end chan struct{} // closed: the old pod's answers come to their end

	mu       sync.Mutex
	lastID   int             // of the old pod's events
	call     json.RawMessage // the JSON-RPC id of the tool call in flight
	came     time.Time       // when the client has reconnected to the young pod
	resumeAt string          // its Last-Event-ID
}

func newModel() *model { return &model{end: make(chan struct{})} }

// pace is the time between two words of an answer.
const pace = 20 * time.Millisecond

// answer has the parts of an answer in one of the dialects: before the words, for each word, and
// after them.
type answer struct {
	contentType string
	before      string
	word        func(n int) string
	after       string
}

const (
	responseObject = `{"id":"resp_1","object":"response","created_at":1,"status":%q,"model":"fake","output":[],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"error":null,"incomplete_details":null,"instructions":null,"metadata":{},"temperature":1,"top_p":1,"usage":{"input_tokens":1,"input_tokens_details":{"cached_tokens":0},"output_tokens":1,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":2}}`
	messageObject  = `{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"fake","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`
)

// event writes an event of those dialects whose events have their type in both places.
func event(kind, members string) string {
	return fmt.Sprintf("event: %s\ndata: {\"type\":%q%s}\n\n", kind, kind, members)
}

// completion is a chunk of OpenAI's chat completions.
func completion(delta, reason string) string {
	return fmt.Sprintf(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"fake","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`+"\n\n", delta, reason)
}

var answers = map[string]answer{
	"/v1/chat/completions": {
		contentType: "text/event-stream; charset=utf-8",
		before:      completion(`{"role":"assistant","content":""}`, "null"),
		word:        func(n int) string { return completion(fmt.Sprintf(`{"content":"w%d "}`, n), "null") },
		after:       completion("{}", `"stop"`) + "data: [DONE]\n\n",
	},
	"/v1/responses": {
		contentType: "text/event-stream; charset=utf-8",
		before: event("response.created", `,"sequence_number":0,"response":`+fmt.Sprintf(responseObject, "in_progress")) +
			event("response.output_item.added", `,"sequence_number":1,"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","status":"in_progress","content":[]}`) +
			event("response.content_part.added", `,"sequence_number":2,"output_index":0,"content_index":0,"item_id":"msg_1","part":{"type":"output_text","text":"","annotations":[]}`),
		word: func(n int) string {
			return event("response.output_text.delta", fmt.Sprintf(`,"sequence_number":%d,"output_index":0,"content_index":0,"item_id":"msg_1","delta":"w%d ","logprobs":[]`, n+2, n))
		},
		after: event("response.completed", `,"sequence_number":1000,"response":`+fmt.Sprintf(responseObject, "completed")),
	},
	"/v1/messages": {
		contentType: "text/event-stream; charset=utf-8",
		before:      event("message_start", `,"message":`+messageObject) + event("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`),
		word: func(n int) string {
			return event("content_block_delta", fmt.Sprintf(`,"index":0,"delta":{"type":"text_delta","text":"w%d "}`, n))
		},
		after: event("content_block_stop", `,"index":0`) + event("message_delta", `,"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":5}`) + event("message_stop", ""),
	},
	"/v1/models/fake:streamGenerateContent": {
		contentType: "text/event-stream",
		word: func(n int) string {
			return fmt.Sprintf(`data: {"candidates": [{"content": {"parts": [{"text": "w%d "}],"role": "model"},"index": 0}],"modelVersion": "fake"}`+"\r\n\r\n", n)
		},
		after: `data: {"candidates": [{"content": {"parts": [{"text": ""}],"role": "model"},"finishReason": "STOP","index": 0}],"modelVersion": "fake"}` + "\r\n\r\n",
	},
	"/v2/models/fake/generate_stream": { // Triton's, which is no dialect
		contentType: "text/event-stream; charset=utf-8",
		word: func(n int) string {
			return fmt.Sprintf(`data: {"model_name":"fake","model_version":"1","text_output":"w%d "}`+"\n\n", n)
		},
		after: `data: {"model_name":"fake","model_version":"1","text_output":"","finish_reason":"stop"}` + "\n\n",
	},
	"/api/chat": {
		contentType: "application/x-ndjson",
		word: func(n int) string {
			return fmt.Sprintf(`{"model":"fake","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"w%d "},"done":false}`+"\n", n)
		},
		after: `{"model":"fake","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":""},"done_reason":"stop","done":true,"prompt_eval_count":1,"eval_count":1}` + "\n",
	},
}

// app serves all of it, over HTTP/1.1 and HTTP/2.
func (m *model) app(t *testing.T, _ *service, name string) net.Addr {
	return serveGo(t, m.handler(t, name))
}

func (m *model) handler(t *testing.T, name string) http.Handler {
	mux := http.NewServeMux()
	handleAnswers(mux, func(w http.ResponseWriter, r *http.Request, word func(n int) string) bool {
		m.words(w, r, word)
		return true
	})
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) { m.events(w, r, name) })
	mux.HandleFunc("POST /mcp", func(w http.ResponseWriter, r *http.Request) { m.mcp(t, w, r) })
	mux.HandleFunc("GET /mcp", func(w http.ResponseWriter, r *http.Request) { m.mcpEvents(w, r, name) })
	mux.HandleFunc("DELETE /mcp", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// handleAnswers has the endpoints of all dialects answer with what words writes, and then their end if it reports true.
func handleAnswers(mux *http.ServeMux, words func(w http.ResponseWriter, r *http.Request, word func(n int) string) bool) {
	for path, a := range answers {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", a.contentType)
			say(w, a.before)
			if words(w, r, a.word) {
				say(w, a.after)
			}
		})
	}
}

func say(w http.ResponseWriter, text string) {
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

// words says one word after another until the answer ends, after as many as the query requests, or its client has gone.
func (m *model) words(w http.ResponseWriter, r *http.Request, word func(n int) string) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	last, err := strconv.Atoi(r.URL.Query().Get("words"))
	for n := 1; err != nil || n <= last; n++ {
		say(w, word(n))
		select {
		case <-tick.C:
		case <-m.end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// events numbers its events. The young pod continues where the client has seen the old one's.
func (m *model) events(w http.ResponseWriter, r *http.Request, name string) {
	w.Header().Set("Content-Type", "text/event-stream")
	if name == "old" {
		m.words(w, r, func(n int) string {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.lastID = n
			return fmt.Sprintf("id: %d\ndata: e%d\n\n", n, n)
		})
		return
	}
	m.mu.Lock()
	m.came, m.resumeAt = time.Now(), r.Header.Get("Last-Event-ID")
	m.mu.Unlock()
	from, _ := strconv.Atoi(r.Header.Get("Last-Event-ID"))
	for n := from + 1; n <= from+3; n++ {
		say(w, fmt.Sprintf("id: %d\ndata: e%d\n\n", n, n))
	}
	say(w, "event: end\ndata: end\n\n")
	<-r.Context().Done()
}

// mcp is a server of MCP over streamable HTTP with two tools: what "plain" does cannot be
// resumed, what "resumable" does can be, at either pod.
func (m *model) mcp(t *testing.T, w http.ResponseWriter, r *http.Request) {
	var call struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name            string
			ProtocolVersion string
			Meta            struct {
				ProgressToken json.RawMessage `json:"progressToken"`
			} `json:"_meta"`
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		t.Error(err)
	}
	w.Header().Set("Mcp-Session-Id", "1")
	reply := func(result string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, result)
	}
	switch call.Method {
	case "initialize":
		reply(fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"fake","version":"1"}}`, call.Params.ProtocolVersion))
	case "tools/list":
		reply(`{"tools":[{"name":"plain","inputSchema":{"type":"object"}},{"name":"resumable","inputSchema":{"type":"object"}}]}`)
	case "tools/call":
		resumable := call.Params.Name == "resumable"
		m.mu.Lock()
		m.call = call.ID
		m.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		if resumable {
			say(w, "id: 1\ndata: \n\n")
		}
		m.words(w, r, func(n int) string {
			id := ""
			if resumable {
				id = fmt.Sprintf("id: %d\n", n+1)
			}
			return fmt.Sprintf("event: message\n%sdata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":%d}}\n\n", id, call.Params.Meta.ProgressToken, n)
		})
	default:
		if call.ID != nil {
			t.Errorf("the client calls %s", call.Method)
		}
		w.WriteHeader(http.StatusAccepted)
	}
}

// mcpEvents is the stream of the server's own messages, or, with a Last-Event-ID, what has become of the call.
func (m *model) mcpEvents(w http.ResponseWriter, r *http.Request, name string) {
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Header.Get("Last-Event-ID") != "" && name == "young" {
		m.mu.Lock()
		m.came, m.resumeAt = time.Now(), r.Header.Get("Last-Event-ID")
		call := string(m.call)
		m.mu.Unlock()
		say(w, fmt.Sprintf("event: message\nid: 1000\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"done\"}]}}\n\n", call))
		<-r.Context().Done()
		return
	}
	say(w, fmt.Sprintf("event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":%q}}\n\n", "from the "+name+" pod"))
	<-r.Context().Done()
}

// progress is how far the old pod's events have come.
func (m *model) progress() (lastID int, came time.Time, resumeAt string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastID, m.came, strings.TrimSpace(m.resumeAt)
}
