package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/pipe"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
)

// endingsFlags say how the pipe ends what does not end by itself. docs/endings.md
// says what its clients see.
type endingsFlags struct {
	spread         time.Duration
	webSocket      string
	webSocketClose int
	eventStreams   string
	flags          *pflag.FlagSet
}

func (f *endingsFlags) register(flags *pflag.FlagSet) {
	f.flags = flags
	flags.DurationVar(&f.spread, "last-call-spread", 0, "spread the endings over this part of the last call (default $LASTCALL_LAST_CALL_SPREAD, or half of it)")
	flags.StringVar(&f.webSocket, "websocket", "", "when a drain closes WebSockets, `wait|close`: at the last call, or when the draining phase ends (default $LASTCALL_WEBSOCKET or wait)")
	flags.IntVar(&f.webSocketClose, "websocket-close", 0, "status code of the close frame that ends a WebSocket, `1001|1012` (default $LASTCALL_WEBSOCKET_CLOSE or 1001)")
	flags.StringVar(&f.eventStreams, "event-streams", "", "the same as --websocket for server-sent events that answer a GET, `wait|close` (default $LASTCALL_EVENT_STREAMS or wait)")
}

// resolve puts the flags over what the settings say.
func (f *endingsFlags) resolve(s *meshconfig.Settings) (pipe.Endings, error) {
	e := pipe.Endings{Spread: s.Spread.Value, WebSocketCode: s.WebSocketClose.Value, EndlessTypes: s.EndlessTypes.Value}
	if f.flags.Changed("last-call-spread") {
		if e.Spread = f.spread; f.spread < 0 {
			return e, usage{fmt.Errorf("--last-call-spread %v: must be a duration such as 500ms, or 0s for half of the last call", f.spread)}
		}
	}
	if f.flags.Changed("websocket-close") {
		e.WebSocketCode = f.webSocketClose
	}
	if e.WebSocketCode != ws.CloseGoingAway && e.WebSocketCode != ws.CloseServiceRestart {
		return e, usage{fmt.Errorf("--websocket-close %d: must be 1001 or 1012", e.WebSocketCode)}
	}
	for _, o := range []struct {
		name, flag, setting string
		to                  *pipe.LongLived
	}{
		{"websocket", f.webSocket, s.WebSocket.Value, &e.WebSockets},
		{"event-streams", f.eventStreams, s.EventStreams.Value, &e.EventStreams},
	} {
		text := o.setting
		if f.flags.Changed(o.name) {
			text = o.flag
		}
		var err error
		if *o.to, err = pipe.ParseLongLived(text); err != nil {
			return e, usage{fmt.Errorf("--%s %w", o.name, err)}
		}
	}
	return e, nil
}
