//go:build linux

package rehearse

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/rehearsal/service"
)

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
