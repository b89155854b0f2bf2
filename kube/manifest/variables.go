package manifest

import (
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Expanded returns a container as its kubelet starts it: with the values of its variables in place of $(NAME) in the command,
// the arguments and the variables after them. $$ stands for $. A reference to a variable without a known value, such as one
// of a Secret, stays as it is.
func Expanded(c corev1.Container) corev1.Container {
	values := map[string]string{}
	c.Env = slices.Clone(c.Env)
	for i := range c.Env {
		v := &c.Env[i]
		if v.ValueFrom != nil {
			delete(values, v.Name)
			continue
		}
		v.Value = substitute(v.Value, values)
		values[v.Name] = v.Value
	}
	c.Command, c.Args = slices.Clone(c.Command), slices.Clone(c.Args)
	for _, all := range [][]string{c.Command, c.Args} {
		for i := range all {
			all[i] = substitute(all[i], values)
		}
	}
	return c
}

var reference = regexp.MustCompile(`\$(\$|\([^)]*\))`)

func substitute(text string, values map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, ok := values[found[2:len(found)-1]]; ok {
			return value
		}
		return found
	})
}
