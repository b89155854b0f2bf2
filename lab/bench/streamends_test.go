package main

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/lab/bench/stream"
)

func TestJudgeEnds(t *testing.T) {
	signalled := time.Now()
	at := func(ms int) time.Time { return signalled.Add(time.Duration(ms) * time.Millisecond) }
	v := judgeEnds([]stream.End{
		{At: at(1500), Proper: true}, {At: at(1000), Proper: true}, {At: at(1090), Err: fmt.Errorf("read: %w", unix.ECONNRESET)},
		{At: at(1180), Err: errors.New("unexpected EOF")}, {Err: errors.New("still open")},
	}, signalled)
	for m, want := range map[*metric]float64{firstEnd: 1, lastEnd: 1.5, crowd: 2, properEnds: 2, cutStreams: 3, resets: 1} {
		if v[m] != want {
			t.Errorf("%s: %v; want %v", m.title, v[m], want)
		}
	}
}
