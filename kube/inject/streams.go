package inject

import (
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

const (
	// longestStreams bounds annotationStreams.
	longestStreams = 24 * time.Hour

	// streamsMargin is the last call of such pods if they do not set it: a slow model takes seconds for a token, and a
	// stream ends with an error event only between two of them.
	streamsMargin = 5 * time.Second
)

// allowStreams makes the grace period as long as a response needs that begins at the end of the draining phase. A
// longer one stays.
func (j *injection) allowStreams(configured *meshconfig.Settings) error {
	text := j.pod.Annotations[annotationStreams]
	if text == "" {
		return nil
	}
	longest, err := time.ParseDuration(text)
	if err != nil || longest < time.Second || longest > longestStreams {
		return fmt.Errorf("annotation %s is %q: must be the duration of the longest response, 1s to %v, such as 10m",
			annotationStreams, text, longestStreams)
	}
	if !configured.Margin.IsSet() && j.env.get(meshconfig.VariableMargin) == "" {
		j.env.set(meshconfig.VariableMargin, streamsMargin.String())
	}
	env := j.env.pairs()
	if minimum := j.pod.Annotations[pod.AnnotationMinimumDrain]; minimum != "" {
		env = append(env, meshconfig.VariableMinimumDrain+"="+minimum)
	}
	s, err := Resolve(j.MeshConfig, j.pod.Annotations, env)
	if err != nil {
		return err
	}
	needs := s.MinimumDrain.Value + s.QuietTime.Value + longest + s.Margin.Value
	seconds := int64((needs + time.Second - 1) / time.Second)
	if GraceOf(&j.pod.Spec) < needs {
		j.pod.Spec.TerminationGracePeriodSeconds = &seconds
	}
	j.note("%s %s: a response that begins when the draining phase ends has the time to end; "+
		"terminationGracePeriodSeconds is %d",
		annotationStreams, text, *j.pod.Spec.TerminationGracePeriodSeconds)
	return nil
}
