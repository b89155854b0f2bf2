package lint

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// selection has the workloads that a selector selects in a namespace.
type selection struct {
	all      *backends
	inFile   map[*manifest.File]*backends
	inFolder map[string]*backends
}

// label is one of the pods of a namespace.
type label struct{ namespace, key, value string }

func newSelection(namespace string, selector map[string]string, labelled map[label][]*workload) *selection {
	s := &selection{newBackends(), map[*manifest.File]*backends{}, map[string]*backends{}}
	selects := labels.SelectorFromSet(selector)
	var among []*workload // those with the rarest of the labels
	isFirst := true
	for key, value := range selector {
		if with := labelled[label{namespace, key, value}]; isFirst || len(with) < len(among) {
			among, isFirst = with, false
		}
	}
	for _, w := range among {
		if selects.Matches(labels.Set(w.Pod.Labels)) {
			file, folder := w.object.File, path.Dir(w.object.File.Name)
			if s.inFile[file] == nil {
				s.inFile[file] = newBackends()
			}
			if s.inFolder[folder] == nil {
				s.inFolder[folder] = newBackends()
			}
			for _, b := range []*backends{s.all, s.inFile[file], s.inFolder[folder]} {
				b.workloads = append(b.workloads, w)
			}
		}
	}
	return s
}

// nearby has the selected workloads that an object means: those of the same file, or else of the same folder, or else
// of the same namespace. A folder may hold many applications, all without a namespace and with the same labels. To an
// object that has twins in other files of its folder, only the same file counts: which variant an object belongs to is
// unknown.
func (s *selection) nearby(o *manifest.Object, hasTwins bool) *backends {
	inFile, inFolder := s.inFile[o.File], s.inFolder[path.Dir(o.File.Name)]
	switch {
	case hasTwins, inFile != nil:
		return inFile
	case inFolder != nil:
		first, last := inFolder.workloads[0], inFolder.workloads[len(inFolder.workloads)-1]
		if first.object.File != last.object.File {
			return nil // variants of one application, such as tests have: which one is meant is unknown
		}
		return inFolder
	case o.Namespace != "":
		return s.all
	}
	return nil
}

// backends are workloads that Services select together: each Service adds to them, and not to each workload.
type backends struct {
	workloads []*workload
	services  []*service                      // for requests, one of those with the same target ports
	to        map[intstr.IntOrString]*service // the first to a target port
	seen      map[string]bool
	hasty     map[time.Duration]*workload // see leavesBefore
}

func newBackends() *backends {
	return &backends{to: map[intstr.IntOrString]*service{}, seen: map[string]bool{}, hasty: map[time.Duration]*workload{}}
}

func (b *backends) add(s *service) {
	if b == nil || !s.isForRequests() {
		return
	}
	if len(b.services) == 0 {
		for _, w := range b.workloads {
			w.backends = append(w.backends, b)
		}
	}
	targets := pod.Targets(&s.Service)
	if same := fmt.Sprint(targets); !b.seen[same] {
		b.seen[same] = true
		b.services = append(b.services, s)
		for _, t := range targets {
			if b.to[t] == nil {
				b.to[t] = s
			}
		}
	}
}

// services are those that send requests to the pod, in their order, as far as they differ for it: the first to each of
// its ports, and the first to none.
func (w *workload) services() (all []*service) {
	ports := map[intstr.IntOrString]bool{}
	for _, c := range w.Pod.Spec.Containers {
		for _, p := range c.Ports {
			ports[intstr.FromInt32(p.ContainerPort)], ports[intstr.FromString(p.Name)] = true, true
		}
	}
	for _, b := range w.backends {
		for port := range ports {
			if s := b.to[port]; s != nil && !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
		isOther := func(s *service) bool {
			return !slices.ContainsFunc(pod.Targets(&s.Service), func(t intstr.IntOrString) bool { return ports[t] })
		}
		if i := slices.IndexFunc(b.services, isOther); i >= 0 {
			all = append(all, b.services[i])
		}
	}
	slices.SortFunc(all, func(a, b *service) int { return cmp.Compare(a.order, b.order) })
	return all
}

// leavesBefore is the first workload that accepts connections for less than a time, or nil.
func (b *backends) leavesBefore(d time.Duration) *workload {
	if b == nil {
		return nil
	}
	w, isKnown := b.hasty[d]
	if !isKnown {
		if i := slices.IndexFunc(b.workloads, func(w *workload) bool { return w.stays() < d }); i >= 0 {
			w = b.workloads[i]
		}
		b.hasty[d] = w
	}
	return w
}
