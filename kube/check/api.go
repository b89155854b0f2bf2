package check

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// nativeSince is the first version whose native sidecars are on by default.
var nativeSince = version.MustParseGeneric("1.29")

// api reports whether the API server responds.
func (c *checker) api() bool {
	c.group("Kubernetes API")
	const reached = "the API server responds"
	found, _ := look(c, reached, func(ctx context.Context) (*version.Version, error) {
		info, err := c.Server.ServerVersionWithContext(ctx)
		if err != nil {
			return nil, err
		}
		return version.ParseGeneric(info.GitVersion)
	})
	if found == nil {
		return false
	}
	c.ok(reached, "version %s", found)
	if found.LessThan(nativeSince) {
		c.add(Check{Name: "the version has native sidecars", Status: Failed, Detail: fmt.Sprintf("%s is older than %s", found, nativeSince),
			Hint: "upgrade the cluster, or inject classic sidecars: Helm value sidecar.native=false", Page: "install.md"})
	} else {
		c.ok("the version has native sidecars", "%s or later", nativeSince)
	}
	return true
}
