package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/lastcall-dev/lastcall/kube/advice"
	"github.com/lastcall-dev/lastcall/kube/observe"
)

// spans sends terminations as spans of OpenTelemetry. At most 2,048 wait; the SDK drops further ones.
type spans struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// newSpans returns nil if OpenTelemetry's variables name no receiver.
func newSpans(ctx context.Context, node, version string, log *slog.Logger) (*spans, error) {
	to := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if base := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); to == "" && base != "" {
		to = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	if to == "" {
		return nil, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("cannot send spans", "error", err) }))
	exporter, err := otlptrace.New(ctx, receiver(to))
	if err != nil {
		return nil, fmt.Errorf("send spans: %w", err)
	}
	of, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "lastcall-observer"),
		attribute.String("service.version", version),
		attribute.String("k8s.node.name", node),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(of))
	return &spans{provider, provider.Tracer("lastcall-observer")}, nil
}

// add sends a span from the beginning of a termination to the end of the last container.
func (s *spans) add(t observe.Termination) {
	seconds := t.Seconds
	for _, e := range t.Exits {
		seconds = max(seconds, e.Seconds)
	}
	end := t.Began.Add(time.Duration(seconds * float64(time.Second)))
	if len(t.Exits) == 0 { // unknown
		end = time.Now()
	}
	_, span := s.tracer.Start(context.Background(), "termination", trace.WithTimestamp(t.Began), trace.WithAttributes(
		attribute.String("k8s.namespace.name", t.Namespace),
		attribute.String("k8s.pod.name", t.Pod),
		attribute.String("k8s.pod.uid", string(t.UID)),
		attribute.String("k8s.container.name", t.Container), // of one that ended without its pod
		attribute.String("lastcall.workload", t.Workload),
		attribute.String("lastcall.proxy", t.Proxy),
		attribute.String("lastcall.verdict", t.Verdict),
		attribute.Int("lastcall.lost.least", t.LostLeast),
		attribute.Int("lastcall.lost.most", t.LostMost),
		attribute.String("lastcall.lost.reason", t.Traffic.Lost.Why()),
		attribute.String("lastcall.doubts", t.Doubts()),
		attribute.Float64("lastcall.lateness_seconds", t.Lateness),
	))
	if t.Verdict == advice.Lost || t.Verdict == advice.Killed {
		span.SetStatus(codes.Error, t.Summary())
	}
	span.End(trace.WithTimestamp(end))
}

// close sends the spans that wait, until ctx ends.
func (s *spans) close(ctx context.Context) {
	if err := s.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// receiver is the address of one, by OTLP over HTTP. The SDK's own exporter contains gRPC, which takes 6 MB of disk and
// 4 MB of memory on each node.
type receiver string

func (receiver) Start(context.Context) error { return nil }

func (receiver) Stop(context.Context) error {
	http.DefaultClient.CloseIdleConnections()
	return nil
}

func (r receiver) UploadTraces(ctx context.Context, all []*otlp.ResourceSpans) error {
	body, err := proto.Marshal(&otlp.TracesData{ResourceSpans: all}) // the fields of ExportTraceServiceRequest
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, string(r), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("send spans: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("send spans: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("send spans to %s: %s", r, response.Status)
	}
	return nil
}
