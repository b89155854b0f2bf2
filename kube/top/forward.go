package top

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/lastcall-dev/lastcall/internal/live"
	"github.com/lastcall-dev/lastcall/internal/meshconfig"
)

const (
	defaultStatusPort = meshconfig.DefaultStatusPort
	longestState      = 256 << 10 // bytes of one state; ten requests of 16 KiB
	silence           = 5 * time.Second
	lastComplaint     = time.Second // for the reason of an end, which arrives on a stream of its own
)

// errSilent ends a stream from which nothing has arrived for silence: an agent sends a state each second.
var errSilent = fmt.Errorf("nothing received for %v", silence)

// Follow reads a pod's states until ctx or the stream ends, and passes each to each. It needs the permission to create
// pods/portforward. The error is never nil.
type Follow func(ctx context.Context, pod *corev1.Pod, each func(live.State)) error

// Forward returns a Follow through the API server.
func Forward(config *rest.Config, core coreclient.CoreV1Interface) Follow {
	return func(ctx context.Context, pod *corev1.Pod, each func(live.State)) error {
		port, err := statusPort(pod)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		watchdog := time.AfterFunc(silence, func() { cancel(errSilent) })
		defer watchdog.Stop()
		dialled := make(chan error, 1)
		var connection httpstream.Connection
		go func() { // Dial takes no context
			var err error
			connection, err = dial(config, core, pod)
			dialled <- err
		}()
		select {
		case err = <-dialled:
		case <-ctx.Done():
			go func() {
				if <-dialled == nil {
					_ = connection.Close()
				}
			}()
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("forward a port: %w", err)
		}
		defer func() { _ = connection.Close() }()
		defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
		err = follow(connection, port, func(s live.State) {
			watchdog.Reset(silence)
			each(s)
		})
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
}

// dial opens a connection for streams to a pod. API servers before Kubernetes 1.31 do not forward over WebSockets.
func dial(config *rest.Config, core coreclient.CoreV1Interface, pod *corev1.Pod) (httpstream.Connection, error) {
	url := core.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport, Timeout: silence}, http.MethodPost, url)
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, config)
	if err != nil {
		return nil, err
	}
	both := portforward.NewFallbackDialerForStreaming(tunnel, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	connection, _, err := both.Dial(portforward.PortForwardProtocolV1Name)
	return connection, err
}

// follow requests the states on a port of the pod, as the only request of the connection.
func follow(connection httpstream.Connection, port int32, each func(live.State)) error {
	headers := http.Header{corev1.PortHeader: {strconv.Itoa(int(port))}, corev1.PortForwardRequestIDHeader: {"0"}}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	complaints, err := connection.CreateStream(headers)
	if err != nil {
		return fmt.Errorf("forward port %d: %w", port, err)
	}
	_ = complaints.Close() // nothing is written there
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(headers)
	if err != nil {
		return fmt.Errorf("forward port %d: %w", port, err)
	}
	complained := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(complaints, 1<<10))
		complained <- strings.TrimSpace(string(text))
	}()
	err = request(data, each)
	defer time.AfterFunc(lastComplaint, func() { _ = connection.Close() }).Stop() // ends the read of complaints
	if text := <-complained; text != "" {
		err = errors.New(text)
	}
	return err
}

// request reads the states of a connection's only request. It leaves the body open: to close it means to read it to its
// end.
func request(c io.ReadWriter, each func(live.State)) error {
	if _, err := io.WriteString(c, "GET "+live.EventsPath+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		return fmt.Errorf("request the states: %w", err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return fmt.Errorf("request the states: %w", err)
	}
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return errors.New("the agent has no " + live.EventsPath + ": it is older than this command")
	default:
		return fmt.Errorf("request the states: %s", response.Status)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, longestState)
	for lines.Scan() {
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		if !isData {
			continue
		}
		var state live.State
		if err := json.Unmarshal([]byte(data), &state); err != nil {
			return fmt.Errorf("read a state: %w", err)
		}
		each(state)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the states: %w", err)
	}
	return errEnded
}

// errEnded is the end of an agent.
var errEnded = errors.New("the agent has ended")
