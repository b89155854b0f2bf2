package eventstream

import "bytes"

// dialect is a protocol on top of event streams or JSON lines that has an end of its own, and an event that its client
// libraries raise as an error. It is recognized by its first event and never guessed: other clients would ignore our
// event.
type dialect uint8

const (
	unknown       dialect = iota
	openAI                // chat and text completions: OpenAI, vLLM, LiteLLM, Ollama's /v1, …
	openAIReplies         // OpenAI's Responses API
	anthropic             // Anthropic's Messages API
	gemini                // Google's Gemini API, streamGenerateContent with alt=sse
	ollama                // Ollama's own API: JSON lines
)

func (s *Stream) judge() {
	m := &s.members
	kind := string(m.kind.bytes())
	if s.dialect == unknown {
		switch object := string(m.object.bytes()); {
		case object == "chat.completion.chunk", object == "text_completion":
			s.dialect = openAI
		case bytes.HasPrefix(m.kind.bytes(), []byte("response.")):
			s.dialect = openAIReplies
		case kind == "message_start":
			s.dialect = anthropic
		case !s.jsonLines && m.has(memberCandidates|memberModelVersion):
			s.dialect = gemini
		case s.jsonLines && m.has(memberModel|memberCreatedAt|memberDone):
			s.dialect = ollama
		}
	}
	s.sequence, s.complete = m.sequence, s.isTerminal(kind)
}

// isTerminal reports whether the event is the last of its stream: the application has finished or failed. A wrong guess
// would make a truncated response look complete, so only events with no other meaning count.
func (s *Stream) isTerminal(kind string) bool {
	if s.lines == 1 && string(s.data.bytes()) == "[DONE]" {
		return true
	}
	m := &s.members
	switch s.dialect {
	case openAI, gemini:
		return m.has(memberError)
	case ollama:
		return m.has(memberError) || m.done
	case openAIReplies:
		switch kind {
		case "response.completed", "response.failed", "response.incomplete", "error":
			return true
		}
	case anthropic:
		return kind == "message_stop" || kind == "error"
	case unknown:
		// The response of MCP's streamable HTTP. Other protocols (A2A) send several JSON-RPC responses in one stream,
		// in events without a name.
		return string(s.event.bytes()) == "message" && m.has(memberJSONRPC|memberID) && !m.has(memberMethod) &&
			(m.has(memberResult) || m.has(memberError))
	}
	return false
}
