package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/pipe"
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
	flags.DurationVar(&f.spread, "last-call-spread", 0, "over how much of the last call endings are spread (default $LASTCALL_LAST_CALL_SPREAD, or half of what there is)")
	flags.StringVar(&f.webSocket, "websocket", "", "in a drain WebSockets `wait|close`: for the last call, or as soon as no new connections are awaited (default $LASTCALL_WEBSOCKET or wait)")
	flags.IntVar(&f.webSocketClose, "websocket-close", 0, "the status `1001|1012` of the close frame that ends a WebSocket (default $LASTCALL_WEBSOCKET_CLOSE or 1001)")
	flags.StringVar(&f.eventStreams, "event-streams", "", "the same as --websocket for server-sent events that answer a GET, `wait|close` (default $LASTCALL_EVENT_STREAMS or wait)")
}

// resolve puts the flags over what the settings say.
func (f *endingsFlags) resolve(s *meshconfig.Settings) (pipe.Endings, error) {
	e := pipe.Endings{Spread: s.Spread.Value, WebSocketCode: s.WebSocketClose.Value, EndlessTypes: s.EndlessTypes.Value}
	if f.flags.Changed("last-call-spread") {
		if e.Spread = f.spread; f.spread < 0 {
			return e, usage{fmt.Errorf("--last-call-spread %v: accepted are durations such as 500ms, and 0s for half of what there is", f.spread)}
		}
	}
	if f.flags.Changed("websocket-close") {
		e.WebSocketCode = f.webSocketClose
	}
	if e.WebSocketCode != pipe.CodeGoingAway && e.WebSocketCode != pipe.CodeRestart {
		return e, usage{fmt.Errorf("--websocket-close %d: accepted are 1001 and 1012", e.WebSocketCode)}
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
