package bugreport

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// Exec returns a function for Options.Exec. It needs the permission to create pods/exec.
func Exec(config *rest.Config, core coreclient.CoreV1Interface) func(ctx context.Context, namespace, pod, container string, command []string) ([]byte, error) {
	return func(ctx context.Context, namespace, pod, container string, command []string) ([]byte, error) {
		request := core.RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
		executor, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
		if err != nil {
			return nil, err
		}
		out, complaint := &limited{most: mostFile}, &limited{most: 4 << 10}
		if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out, Stderr: complaint}); err != nil {
			return out.Bytes(), fmt.Errorf("run %s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(complaint.String()))
		}
		return out.Bytes(), nil
	}
}

// limited keeps the first bytes and drops the rest.
type limited struct {
	bytes.Buffer
	most int
}

func (l *limited) Write(p []byte) (int, error) {
	if room := l.most - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
