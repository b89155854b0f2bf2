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

// sources are the values of ConfigMaps and Secrets of a namespace that the input has.
type sources struct{ configMaps, secrets map[string]map[string]string }

// newSources reads them. An object without a namespace may be of each.
func newSources(files []*manifest.File, namespace string) (sources, error) {
	s := sources{map[string]map[string]string{}, map[string]map[string]string{}}
	for _, f := range files {
		for _, o := range f.Objects {
			if o.Namespace != namespace && o.Namespace != "" && namespace != "" {
				continue
			}
			switch {
			case o.Is("", "ConfigMap"):
				var c corev1.ConfigMap
				if err := o.Decode(&c); err != nil {
					return s, fmt.Errorf("%s: %s: %w", f.Name, o, err)
				}
				s.configMaps[o.Name] = c.Data
			case o.Is("", "Secret"):
				var c corev1.Secret
				if err := o.Decode(&c); err != nil {
					return s, fmt.Errorf("%s: %s: %w", f.Name, o, err)
				}
				values := map[string]string{}
				for name, value := range c.Data {
					values[name] = string(value)
				}
				maps.Copy(values, c.StringData)
				s.secrets[o.Name] = values
			}
		}
	}
	return s, nil
}

// value returns what a variable refers to; found is false if the input lacks it.
func (s sources) value(from *corev1.EnvVarSource) (value string, found bool) {
	switch {
	case from.ConfigMapKeyRef != nil:
		value, found = s.configMaps[from.ConfigMapKeyRef.Name][from.ConfigMapKeyRef.Key]
	case from.SecretKeyRef != nil:
		value, found = s.secrets[from.SecretKeyRef.Name][from.SecretKeyRef.Key]
	}
	return value, found
}

// all returns the variables of an envFrom; found is false if the input lacks its object.
func (s sources) all(from corev1.EnvFromSource) (all []corev1.EnvVar, found bool) {
	var values map[string]string
	switch {
	case from.ConfigMapRef != nil:
		values, found = s.configMaps[from.ConfigMapRef.Name]
	case from.SecretRef != nil:
		values, found = s.secrets[from.SecretRef.Name]
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all = append(all, corev1.EnvVar{Name: from.Prefix + name, Value: literal(values[name])})
	}
	return all, found
}

// literal is a value in which no reference is replaced.
func literal(value string) string { return strings.ReplaceAll(value, "$", "$$") }

// readVariables takes over the variables with a value, as the kubelet orders them: those of envFrom first. A variable
// that names the containerPort, such as PORT, gets the app's own port, and so do those that refer to it. p.Missing are
// those whose value the input lacks.
func readVariables(c corev1.Container, s sources, p *service.Pod, note func(string, ...any)) {
	var env []corev1.EnvVar
	for _, from := range c.EnvFrom {
		found, ok := s.all(from)
		env = append(env, found...)
		if ok {
			continue
		}
		switch {
		case from.ConfigMapRef != nil:
			p.Missing = append(p.Missing, "all of ConfigMap "+from.ConfigMapRef.Name)
		case from.SecretRef != nil:
			p.Missing = append(p.Missing, "all of Secret "+from.SecretRef.Name)
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom != nil {
			if value, found := s.value(v.ValueFrom); found {
				v.Value, v.ValueFrom = literal(value), nil
			}
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
		if v.ValueFrom != nil {
			p.Missing = append(p.Missing, v.Name+origin(v.ValueFrom))
			continue
		}
		p.Env = append(p.Env, v.Name+"="+v.Value)
	}
}

// origin names a variable's object.
func origin(from *corev1.EnvVarSource) string {
	switch {
	case from.ConfigMapKeyRef != nil:
		return " (ConfigMap " + from.ConfigMapKeyRef.Name + ")"
	case from.SecretKeyRef != nil:
		return " (Secret " + from.SecretKeyRef.Name + ")"
	}
	return ""
}
