package inject

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/kube/pod"
)

//go:embed testdata/pods/shapes.yaml
var shapesYAML string

var shapes = func() (all []json.RawMessage) {
	for _, text := range strings.Split(shapesYAML, "---\n")[1:] {
		shape, err := yaml.YAMLToJSONStrict([]byte(text))
		if err != nil {
			panic(err)
		}
		all = append(all, shape)
	}
	return all
}()

//go:embed testdata/pods/vary.yaml
var variationsYAML string

var variations = func() (all []variation) {
	if err := yaml.UnmarshalStrict([]byte(variationsYAML), &all); err != nil {
		panic(err)
	}
	return all
}()

// ofOurs reads JSON of our own.
func ofOurs(text []byte, into any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		panic(err)
	}
}

// Pods makes n pods such as clusters have them, all different, and valid for the API server of Kubernetes 1.34 and
// later. Half of a pod comes from a shape, written after what well-known charts and operators deploy: a database with an
// init container, a node agent with hostNetwork, a pod for Windows. The other half is varied: every field that an
// injector has to live with, each with a probability of its own. Some of the pods cannot be injected, on purpose. The
// i-th pod of a seed does not depend on n.
func Pods(seed uint64, n int) []*corev1.Pod {
	all := make([]*corev1.Pod, n)
	for i := range all {
		g := generator{rand.New(rand.NewPCG(seed, uint64(i))), object{}} // the seed is all that the pod depends on
		ofOurs(shapes[i%len(shapes)], &g.pod)
		first := g.containers("containers")[0]
		for _, v := range variations {
			g.vary(v, "containers", first)
		}
		text, err := json.Marshal(g.pod)
		if err != nil {
			panic(err)
		}
		all[i] = &corev1.Pod{}
		ofOurs(text, all[i])
		all[i].APIVersion, all[i].Kind = "v1", "Pod"
		all[i].Name = fmt.Sprintf("%s-%d", all[i].Labels["app.kubernetes.io/name"], i)
		settle(all[i])
	}
	return all
}

// variation is one of vary.yaml, which describes the fields.
type variation struct {
	Chance                    float64
	Pod, Container            json.RawMessage
	OneOf, Each, Serving, All []variation
}

type object = map[string]any

// generator varies one pod.
type generator struct {
	*rand.Rand
	pod object
}

func (g *generator) containers(list string) (all []object) {
	of, _ := g.pod["spec"].(object)[list].([]any)
	for _, c := range of {
		all = append(all, c.(object))
	}
	return all
}

// vary changes the pod, and of the containers in a list c.
func (g *generator) vary(v variation, list string, c object) {
	if v.Chance > 0 && g.Float64() >= v.Chance {
		return
	}
	if v.Container != nil {
		port := "8080"
		if ports, ok := c["ports"].([]any); ok {
			port = fmt.Sprint(ports[0].(object)["containerPort"])
		}
		patch := object{}
		ofOurs([]byte(strings.ReplaceAll(string(v.Container), `"$PORT"`, port)), &patch)
		patch["name"] = c["name"]
		g.merge(object{"spec": object{list: []any{patch}}})
	}
	for _, inner := range v.All {
		g.vary(inner, list, c)
	}
	g.oneOf(v.OneOf, list, c)
	for _, list := range []string{"initContainers", "containers"} {
		for _, c := range g.containers(list) {
			g.oneOf(v.Each, list, c)
			if list == "containers" || c["restartPolicy"] != nil {
				g.oneOf(v.Serving, list, c)
			}
		}
	}
	if v.Pod != nil {
		patch := object{}
		ofOurs(v.Pod, &patch)
		g.merge(patch)
	}
}

func (g *generator) oneOf(all []variation, list string, c object) {
	if len(all) > 0 {
		g.vary(all[g.IntN(len(all))], list, c)
	}
}

// merge applies a patch of Kubernetes' strategic form.
func (g *generator) merge(patch object) {
	var err error
	if g.pod, err = strategicpatch.StrategicMergeMapPatch(g.pod, patch, corev1.Pod{}); err != nil {
		panic(err)
	}
}

// settle corrects combinations of variations that the API server would refuse.
func settle(p *corev1.Pod) {
	spec := &p.Spec
	grace := int64(30)
	if spec.TerminationGracePeriodSeconds != nil {
		grace = *spec.TerminationGracePeriodSeconds
	}
	if spec.OS != nil && spec.OS.Name == corev1.Windows { // without the fields that only Linux has
		spec.SecurityContext, spec.ShareProcessNamespace, spec.HostUsers, spec.Resources = nil, nil, nil, nil
		spec.HostPID, spec.HostIPC, spec.HostNetwork = false, false, false
		for _, c := range pod.Containers(spec) {
			c.SecurityContext = nil
		}
	}
	for _, c := range pod.Containers(spec) {
		for i := range c.Ports {
			if spec.HostNetwork { // a port is the node's then
				c.Ports[i].HostPort = c.Ports[i].ContainerPort
			}
		}
		if h := pod.HookOf(c); h != nil && h.Sleep != nil { // 0 to the grace period
			h.Sleep.Seconds = min(h.Sleep.Seconds, grace)
		}
	}
	if spec.HostPID {
		spec.ShareProcessNamespace = nil
	}
	if spec.HostNetwork {
		spec.HostUsers = nil
		if s := spec.SecurityContext; s != nil {
			s.Sysctls = nil
		}
	}
}

// TestWritePods writes pods as JSON, which keeps all of them, for the judgement of an API server: lab/e2e runs it.
func TestWritePods(t *testing.T) {
	file, all := os.Getenv("LASTCALL_WRITE_PODS"), Pods(1, 1000)
	if file == "" {
		file = filepath.Join(t.TempDir(), "pods.json")
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var read []*corev1.Pod
	if err := json.Unmarshal(text, &read); err != nil || len(read) != len(all) {
		t.Fatalf("%d of %d pods are read again: %v", len(read), len(all), err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
