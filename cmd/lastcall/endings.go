package main

import (
	"fmt"

	"github.com/lastcall-dev/lastcall/internal/inbound"
	"github.com/lastcall-dev/lastcall/internal/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/pipe"
)

// endings is how the pipe ends long-lived connections. docs/endings.md describes what clients see.
func endings(s *meshconfig.Settings) (e pipe.Endings, err error) {
	e = pipe.Endings{Spread: s.Spread.Value, WebSocketCode: s.WebSocketClose.Value, EndlessTypes: s.EndlessTypes.Value}
	if e.WebSockets, err = inbound.LongLived(s.WebSocket.Value); err != nil {
		return e, fmt.Errorf("when to close WebSockets: %w", err)
	}
	if e.EventStreams, err = inbound.LongLived(s.EventStreams.Value); err != nil {
		return e, fmt.Errorf("when to close event streams: %w", err)
	}
	return e, nil
}
