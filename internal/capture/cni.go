package capture

import (
	"fmt"
	"strings"
)

// AnnotationCNI marks a pod that the node's network plugin captures (kube/cni). Injection writes it. Its value is the
// agent's own ports, comma-separated; all other settings are the pod's further annotations.
const AnnotationCNI = "lastcall.dev/cni"

// FromCNI is the capture of a pod with these annotations; false if it is not marked.
func FromCNI(annotations map[string]string) (c Config, isMarked bool, err error) {
	text, isMarked := annotations[AnnotationCNI]
	if !isMarked {
		return c, false, nil
	}
	own, err := ports(strings.TrimSpace(text))
	if err != nil {
		return c, true, fmt.Errorf("annotation %s: %w", AnnotationCNI, err)
	}
	c, err = Resolve(Input{Annotations: annotations, OwnPorts: own})
	return c, true, err
}
