package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/lastcall-dev/lastcall/kube/advice"
	"github.com/lastcall-dev/lastcall/kube/observe"
)

// TestSpans: a receiver has a span for each termination when the observer ends.
func TestSpans(t *testing.T) {
	var got otlp.TracesData
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(body, &got)
		}
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %s: %v", r.URL, r.Header, err)
		}
	}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	s, err := newSpans(t.Context(), "node-1", "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Unix(1700000000, 0)
	lost := observe.Termination{UID: "u", Termination: advice.Termination{Namespace: "shop", Pod: "web-1", Began: began, Seconds: 2},
		Exits: []observe.AppExit{{Container: "web", Seconds: 2}, {Container: "proxy", Seconds: 3}}}
	lost.Traffic.Lost.Reset = 2
	lost.Judge()
	s.add(lost)
	clean := observe.Termination{Termination: advice.Termination{Pod: "web-2", Began: began}} // its end was not seen
	clean.Judge()
	s.add(clean)
	s.close(t.Context())

	of := got.GetResourceSpans()[0]
	for _, want := range []string{"service.name lastcall-observer", "k8s.node.name node-1", "deployment.environment.name test"} {
		if all := lines(of.GetResource().GetAttributes()); !slices.Contains(all, want) {
			t.Errorf("resource %q, want %q", all, want)
		}
	}
	both := of.GetScopeSpans()[0].GetSpans()
	if len(both) != 2 {
		t.Fatalf("%d spans, want 2", len(both))
	}
	first, second := both[0], both[1]
	if first.GetName() != "termination" || first.GetStartTimeUnixNano() != uint64(began.UnixNano()) || first.GetEndTimeUnixNano() != uint64(began.Add(3*time.Second).UnixNano()) {
		t.Errorf("%v", first)
	}
	for _, want := range []string{"k8s.namespace.name shop", "k8s.pod.name web-1", "lastcall.verdict lost", "lastcall.lost.reason 2 reset"} {
		if all := lines(first.GetAttributes()); !slices.Contains(all, want) {
			t.Errorf("attributes %q, want %q", all, want)
		}
	}
	if first.GetStatus().GetCode() != otlp.Status_STATUS_CODE_ERROR || !strings.HasPrefix(first.GetStatus().GetMessage(), "2 requests lost") {
		t.Errorf("status %v", first.GetStatus())
	}
	if second.GetStatus().GetCode() != otlp.Status_STATUS_CODE_UNSET || second.GetEndTimeUnixNano() < uint64(began.Add(time.Hour).UnixNano()) {
		t.Errorf("%v", second)
	}
}

func lines(attributes []*common.KeyValue) (all []string) {
	for _, a := range attributes {
		all = append(all, a.GetKey()+" "+a.GetValue().GetStringValue())
	}
	return all
}

// TestSpansWithoutReceiver: none is set, or one that refuses.
func TestSpansWithoutReceiver(t *testing.T) {
	var log bytes.Buffer
	to := slog.New(slog.NewTextHandler(&log, nil))
	if s, err := newSpans(t.Context(), "n", "v", to); s != nil || err != nil {
		t.Errorf("%v, %v without a variable", s, err)
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", server.URL)
	s, err := newSpans(t.Context(), "n", "v", to)
	if err != nil {
		t.Fatal(err)
	}
	s.add(observe.Termination{})
	s.close(t.Context())
	if !strings.Contains(log.String(), "404 Not Found") {
		t.Errorf("log %q", log.String())
	}
}

// TestSpansEnd: a receiver that does not respond does not hold the observer.
func TestSpansEnd(t *testing.T) {
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	defer server.Close()
	defer close(end)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	s, err := newSpans(t.Context(), "n", "v", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.add(observe.Termination{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	s.close(ctx)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the end took %v", took)
	}
}
