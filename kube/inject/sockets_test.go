package inject

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A port's name determines whether idle connections on it can be distinguished from busy ones.
func TestWatchedPorts(t *testing.T) {
	c := &corev1.Container{Ports: []corev1.ContainerPort{
		{Name: "grpc-api", ContainerPort: 9090}, {Name: "http", ContainerPort: 8080}, {Name: "web", ContainerPort: 8081},
		{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}, {Name: "https", ContainerPort: 8443}, {ContainerPort: 8443},
	}}
	want := []watched{{8080, "http"}, {8081, ""}, {8443, "https"}, {9090, "grpc"}}
	if got := watchedPorts(c); !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
}

func TestParseWatched(t *testing.T) {
	for text, want := range map[string][]watched{
		"":                      nil,
		"8080":                  {{8080, ""}},
		" 9090/grpc, 8080/http": {{8080, "http"}, {9090, "grpc"}},
		"8443,8443/h2":          {{8443, "h2"}},
		"80/kubernetes.io/h2c":  {{80, "h2c"}},
	} {
		if got, err := parseWatched(annotationPorts, text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"0", "http", "8080/", "8080/gopher", "65536"} {
		if got, err := parseWatched(annotationPorts, text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// A pod of dapr's names its app's port in an annotation only.
func TestDaprPort(t *testing.T) {
	for name, c := range map[string]struct {
		ports []corev1.ContainerPort
		own   string // lastcall's annotation
		want  string
	}{
		"dapr's":     {nil, "", "wait --ports 9090 --report /dev/termination-log"},
		"listed":     {[]corev1.ContainerPort{{ContainerPort: 8080}}, "", "wait --ports 8080 --report /dev/termination-log"},
		"lastcall's": {nil, "7070", "wait --ports 7070 --report /dev/termination-log"},
	} {
		p := aPod(func(p *corev1.Pod) {
			p.Annotations["dapr.io/enabled"], p.Annotations["dapr.io/app-port"] = "true", "9090"
			p.Spec.Containers[0].Ports = c.ports
		})
		if c.own != "" {
			p.Annotations[annotationPorts] = c.own
		}
		got, r := Pod(p, testOptions())
		if command := command(t, got, "web"); command != c.want {
			t.Errorf("%s: %q, want %q; %+v", name, command, c.want, r)
		}
	}
}
