//go:build linux

// Package rehearse reads the settings of a rehearsal on this machine from manifests: the timers, the hook, the
// environment and the probes of a workload's pods.
package rehearse

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/pod"
	"github.com/lastcall-dev/lastcall/rehearsal/service"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Manifest returns a manifest's settings for the end of a workload's pods. file may be a folder, or - for stdin.
// workload is a name, or KIND/NAME, and may be empty if there is one alone; container is the one that serves, the first
// one with a port if empty.
func Manifest(file string, stdin io.Reader, workload, container string) (service.Pod, error) {
	files, err := manifest.Read([]string{file}, stdin)
	if err != nil {
		return service.Pod{}, fmt.Errorf("-f: %w", err)
	}
	w, err := choose(files, workload)
	if err != nil {
		return service.Pod{}, fmt.Errorf("-f %s: %w", file, err)
	}
	values, err := newSources(files, w.Namespace)
	if err != nil {
		return service.Pod{}, fmt.Errorf("-f: %w", err)
	}
	p, err := settingsOf(w, container, values)
	if err != nil {
		return service.Pod{}, fmt.Errorf("-f %s: %s: %w", file, w, err)
	}
	return p, nil
}

// choose returns the named workload, or the only one. Jobs serve no clients.
func choose(files []*manifest.File, name string) (*manifest.Workload, error) {
	all, unread := manifest.Serving(files)
	var found []*manifest.Workload
	var names []string
	for _, w := range all {
		names = append(names, w.Kind+"/"+w.Name)
		if name == "" || strings.EqualFold(name, w.Kind+"/"+w.Name) || name == w.Name {
			found = append(found, w)
		}
	}
	list := strings.Join(names, ", ")
	switch {
	case len(found) == 0 && len(unread) > 0:
		return nil, errors.New(strings.Join(unread, "; "))
	case len(names) == 0:
		return nil, errors.New("it has no Pod, Deployment or other workload that serves")
	case len(found) == 0:
		return nil, fmt.Errorf("no workload %s: must be one of %s", name, list)
	case len(found) > 1:
		return nil, fmt.Errorf("several workloads: choose one by --workload: %s", list)
	}
	return found[0], nil
}

// settingsOf returns a workload's settings for the end of its pods.
func settingsOf(w *manifest.Workload, container string, values sources) (service.Pod, error) {
	spec := &w.Pod.Spec
	c, err := serving(spec, container)
	if err != nil {
		return service.Pod{}, err
	}
	// The kubelet takes 0 for 1 second when it ends a container.
	p := service.Pod{Workload: w.String(), Grace: max(time.Second, pod.GraceOf(spec))}
	note := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
	if len(c.Ports) > 0 {
		p.Port = int(c.Ports[0].ContainerPort)
	}
	readVariables(*c, values, &p, note)
	if len(p.Missing) > 0 {
		note("variables that are not set, because the input has no value for them: %s", strings.Join(p.Missing, ", "))
	}
	if h := pod.HookOf(c); h != nil {
		p.Hook = hook(h, note)
		read := pod.ReadHook(spec, c)
		if stopper := read.Stopper(); stopper != "" {
			note("the preStop hook ends the app itself, %v after the deletion: %s", read.StopsAt, stopper)
		}
		if failure := read.Failure(); failure != "" {
			note("the preStop hook fails: %s", failure)
		}
		own := inject.JoinOf(w.Pod, c)
		p.Join = strategy.Join{
			Keeps: own.Merge == inject.MergeKeeps, Minimum: own.Sleep,
			Runs: own.Merge == inject.MergeRuns || own.Merge == inject.MergeRunsFirst,
		}
	}
	if signal, source := pod.StopSignal(c); source != "default" {
		if p.StopSignal = unix.SignalNum(signal); p.StopSignal == 0 {
			return p, fmt.Errorf("container %s: unknown stopSignal %s", c.Name, signal)
		}
		if source != pod.FromLifecycle {
			note("the stop signal is %s, which %s sets", signal, source)
		}
	}
	if probe := c.ReadinessProbe; probe != nil && probe.HTTPGet != nil {
		p.ReadyPath = "/" + strings.TrimPrefix(probe.HTTPGet.Path, "/")
	} else if probe != nil && probe.TCPSocket == nil {
		note("the readiness probe is not httpGet: the pod counts as ready when its port is open")
	}
	for _, other := range pod.Each(spec.Containers) {
		if other != c {
			note("container %s is not started", other.Name)
		}
	}
	for _, other := range spec.InitContainers {
		note("init container %s is not started", other.Name)
	}
	return p, nil
}

// serving returns the named container, or the first one that serves, or the first one.
func serving(spec *corev1.PodSpec, name string) (*corev1.Container, error) {
	if len(spec.Containers) == 0 {
		return nil, errors.New("its pods have no containers")
	}
	if name != "" {
		i := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("its pods have no container %s (--container)", name)
		}
		return &spec.Containers[i], nil
	}
	if serves, _ := pod.Serves(spec, nil); len(serves) > 0 {
		return serves[0], nil
	}
	return &spec.Containers[0], nil
}

func hook(h *corev1.LifecycleHandler, note func(string, ...any)) *strategy.Hook {
	switch {
	case h.Exec != nil && len(h.Exec.Command) > 0:
		return &strategy.Hook{Exec: h.Exec.Command}
	case h.Sleep != nil:
		return &strategy.Hook{Sleep: pod.Seconds(h.Sleep.Seconds)}
	case h.HTTPGet != nil:
		return &strategy.Hook{Path: "/" + strings.TrimPrefix(h.HTTPGet.Path, "/")}
	}
	note("the preStop hook is of an unknown kind and does not run")
	return nil
}

// sources are the values of ConfigMaps and Secrets of a namespace that the input has, by "ConfigMap NAME" and "Secret
// NAME".
type sources map[string]map[string]string

// newSources reads them. An object without a namespace may be of each.
func newSources(files []*manifest.File, namespace string) (sources, error) {
	s := sources{}
	for _, f := range files {
		for _, o := range f.Objects {
			if o.Namespace != namespace && o.Namespace != "" && namespace != "" {
				continue
			}
			var err error
			name, values := o.Kind+" "+o.Name, map[string]string{}
			switch {
			case o.Is("", "ConfigMap"):
				var c corev1.ConfigMap
				err = o.Decode(&c)
				maps.Copy(values, c.Data)
			case o.Is("", "Secret"):
				var c corev1.Secret
				err = o.Decode(&c)
				for key, value := range c.Data {
					values[key] = string(value)
				}
				maps.Copy(values, c.StringData)
			default:
				continue
			}
			if err != nil {
				return s, fmt.Errorf("%s: %s: %w", f.Name, o, err)
			}
			s[name] = values
		}
	}
	return s, nil
}

// literal is a value in which no reference is replaced.
func literal(value string) string { return strings.ReplaceAll(value, "$", "$$") }

// readVariables takes over the variables with a value, as the kubelet orders them: those of envFrom first. A variable
// that names the containerPort, such as PORT, gets the app's own port, and so do those that refer to it. p.Missing are
// those whose value the input lacks.
func readVariables(c corev1.Container, s sources, p *service.Pod, note func(string, ...any)) {
	var env []corev1.EnvVar
	for _, from := range c.EnvFrom {
		object := ""
		switch {
		case from.ConfigMapRef != nil:
			object = "ConfigMap " + from.ConfigMapRef.Name
		case from.SecretRef != nil:
			object = "Secret " + from.SecretRef.Name
		}
		values, found := s[object]
		for _, name := range slices.Sorted(maps.Keys(values)) {
			env = append(env, corev1.EnvVar{Name: from.Prefix + name, Value: literal(values[name])})
		}
		if object != "" && !found {
			p.Missing = append(p.Missing, "all of "+object)
		}
	}
	for _, v := range c.Env {
		object, key := source(v.ValueFrom)
		if value, found := s[object][key]; found {
			v.Value, v.ValueFrom = literal(value), nil
		}
		env = append(env, v)
	}
	for i := range env {
		if v := &env[i]; p.Port > 0 && v.Value == fmt.Sprint(p.Port) {
			v.Value = "{port}"
		}
	}
	c.Env = env
	var expansion manifest.Expansion
	c = expansion.Container(c)
	if expansion.IsCut {
		note("%s", manifest.CutText)
	}
	for _, v := range c.Env {
		switch object, _ := source(v.ValueFrom); {
		case v.ValueFrom == nil:
			p.Env = append(p.Env, v.Name+"="+v.Value)
		case object != "":
			p.Missing = append(p.Missing, v.Name+" ("+object+")")
		default:
			p.Missing = append(p.Missing, v.Name)
		}
	}
}

// source names a variable's object and the key in it; empty without one.
func source(from *corev1.EnvVarSource) (object, key string) {
	switch {
	case from == nil:
	case from.ConfigMapKeyRef != nil:
		return "ConfigMap " + from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key
	case from.SecretKeyRef != nil:
		return "Secret " + from.SecretKeyRef.Name, from.SecretKeyRef.Key
	}
	return "", ""
}
