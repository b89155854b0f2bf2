package manifest

import (
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// maxGrowth limits by how many bytes the containers of a pod may grow together: 25 variables, each with two references
// to the one before, would have gigabytes. Linux takes no argument or variable longer than this.
const maxGrowth = 128 << 10

// CutText is the message about an Expansion that is cut.
const CutText = "the references between the variables add more than 128 KiB, and the later ones are not resolved: " +
	"Linux starts no program with a variable or an argument of that length; shorten the variables"

// Expansion expands the containers of one pod. The zero value is ready for use.
type Expansion struct {
	grown int

	// IsCut reports that the limit was reached: the references after that are unchanged.
	IsCut bool
}

// Container returns a container as its kubelet starts it: with the values of its variables in place of $(NAME) in the
// command, the arguments and the variables after them. $$ stands for $. A reference to a variable without a known
// value, such as one of a Secret, stays as it is.
func (e *Expansion) Container(c corev1.Container) corev1.Container {
	values := map[string]string{}
	c.Env = slices.Clone(c.Env)
	for i := range c.Env {
		v := &c.Env[i]
		if v.ValueFrom != nil {
			delete(values, v.Name)
			continue
		}
		v.Value = e.substitute(v.Value, values)
		values[v.Name] = v.Value
	}
	c.Command, c.Args = slices.Clone(c.Command), slices.Clone(c.Args)
	for _, all := range [][]string{c.Command, c.Args} {
		for i := range all {
			all[i] = e.substitute(all[i], values)
		}
	}
	return c
}

var reference = regexp.MustCompile(`\$(\$|\([^)]*\))`)

func (e *Expansion) substitute(text string, values map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		value, ok := values[found[2:len(found)-1]]
		if !ok || e.IsCut {
			return found
		}
		if e.grown += len(value); e.grown > maxGrowth {
			e.IsCut = true
			return found
		}
		return value
	})
}
