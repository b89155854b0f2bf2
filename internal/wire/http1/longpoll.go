package http1

import (
	"bytes"
	"net/url"
)

// LongPollEnd is the body of a response that ends a request which is a long poll of a session, "" if it is none.
//
// A long poll is a GET to which the app responds once it has something to send, and which its client repeats by
// design. Those of Engine.IO, the transport of Socket.IO, are recognized: its server ends a session by a packet of type
// close, after which the client connects again (https://socket.io/docs/v4/engine-io-protocol/). Packets of version 3
// have their lengths before them.
func (h *Head) LongPollEnd() string {
	_, query, _ := bytes.Cut(h.Target, []byte("?"))
	if string(h.Method) != "GET" || !bytes.Contains(query, []byte("transport=polling")) {
		return ""
	}
	values, err := url.ParseQuery(string(query))
	if err != nil || values.Get("transport") != "polling" || values.Get("sid") == "" {
		return ""
	}
	return map[string]string{"3": "1:1", "4": "1"}[values.Get("EIO")]
}
