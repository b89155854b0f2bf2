package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func TestChartHasEachCurve(t *testing.T) {
	c := chart{title: "Memory & time", x: "idle connections", y: "MB", curves: []curve{
		{name: "ours", ours: true, points: [][2]float64{{1000, 10}, {9000, 45}}},
		{name: "theirs", points: [][2]float64{{1000, 20}, {9000, 90}}},
	}}
	for _, c.log = range []bool{false, true} {
		svg, err := c.svg()
		if err != nil {
			t.Fatal(err)
		}
		for decoder := xml.NewDecoder(strings.NewReader(string(svg))); err == nil; {
			_, err = decoder.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("not well-formed: %v", err)
		}
		// The right edge is 616, the lower one 316, the upper one 60 (100 MB).
		for _, part := range []string{"Memory &amp; time", "idle connections", "ours: 45 at 9,000", "L616 85.6", "L616 200.8"} {
			if !strings.Contains(string(svg), part) {
				t.Errorf("log %t lacks %q", c.log, part)
			}
		}
	}
	if _, err := (chart{}).svg(); err == nil {
		t.Error("no points: no error")
	}
}

func TestNiceStep(t *testing.T) {
	for high, want := range map[float64]float64{0.09: 0.02, 1: 0.2, 45: 10, 100: 20, 9000: 2000, 60: 10} {
		if got := niceStep(high); math.Abs(got-want) > want/1e6 {
			t.Errorf("up to %g: %g, want %g", high, got, want)
		}
	}
}

func TestLineGoesThroughItsPoints(t *testing.T) {
	if base, slope := line([][2]float64{{1, 5}, {2, 7}, {4, 11}}); math.Abs(base-3) > 1e-9 || math.Abs(slope-2) > 1e-9 {
		t.Errorf("%g + %g x, want 3 + 2 x", base, slope)
	}
}
