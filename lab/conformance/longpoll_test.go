package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"strconv"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// A client of Socket.IO whose transport is the long poll does not hold the pod when streams that have no end are closed
// early: it learns that its session has ended, and continues at the other pod.
func TestSocketIO(t *testing.T) {
	t.Parallel()
	socketIO := func(args ...string) *bufio.Scanner {
		command := node(t, args...)
		command.Args[1] = "testdata/node/socketio.js"
		out, err := command.StdoutPipe()
		must.Do(t, err)
		must.Do(t, command.Start())
		t.Cleanup(func() {
			_ = command.Process.Kill()
			_ = command.Wait()
		})
		return bufio.NewScanner(out)
	}
	s := startService(t, func(t *testing.T, _ *service, name string) net.Addr {
		at := freeAddr(t)
		socketIO("serve", strconv.Itoa(at.Port), name)
		return at
	})
	client := socketIO("connect", "http://"+s.plain)
	want := func(event, text string) {
		t.Helper()
		var got struct{ Event, Text string }
		if !client.Scan() || json.Unmarshal(client.Bytes(), &got) != nil || got.Event != event || got.Text != text {
			t.Fatalf("the client says %q; want %s %q", client.Bytes(), event, text)
		}
	}
	want("name", "old")
	ctx, cancel := context.WithTimeout(t.Context(), patience/2) // a poll lasts 25 s
	defer cancel()
	r, err := s.roll(ctx)
	if err != nil || r.Verdict != "clean" || len(r.Open)+len(r.Faults) > 0 {
		t.Errorf("the pod's report: %s, %s, %v; %v", r.Verdict, r.Open, r.Faults, err)
	}
	want("disconnect", "transport close")
	want("name", "young")
}
