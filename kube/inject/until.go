package inject

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/until"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// maxSignals limits the signals of a worker.
const maxSignals = 10

// readUntil reads the signals of a worker. An agent cannot ask them: a command and a file belong to the worker's
// container.
func (j *injection) readUntil() error {
	for line := range strings.Lines(j.pod.Annotations[annotationUntil]) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if _, err := until.Parse(line); err != nil {
			return fmt.Errorf("annotation %s: %w", annotationUntil, err)
		}
		j.until = append(j.until, line)
	}
	switch {
	case len(j.until) > maxSignals:
		return fmt.Errorf("annotation %s has %d signals: must be at most %d", annotationUntil, len(j.until), maxSignals)
	case len(j.until) == 0 || !j.captures():
	case j.pod.Annotations[annotationProxy] != "":
		return unableError{fmt.Sprintf("annotation %s needs %s: %s, whose hook runs in the worker's container",
			annotationUntil, annotationProxy, Sockets)}
	default:
		j.proxy = Sockets
	}
	return nil
}

// isWorker reports whether a container is the worker that the signals are about.
func (j *injection) isWorker(c *corev1.Container) bool {
	all := apps(&j.pod.Spec)
	if len(j.until) == 0 || len(all) == 0 {
		return false
	}
	worker := all[0]
	if named := pod.Find(&j.pod.Spec, j.pod.Annotations[annotationDefaultContainer]); named != nil {
		worker = named
	}
	return worker.Name == c.Name
}
