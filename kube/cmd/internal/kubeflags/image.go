package kubeflags

import "regexp"

var released = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)

// ReleasedImage is the sidecar's image that was released with a version of this program; empty for other builds.
func ReleasedImage(version string) string {
	if !released.MatchString(version) {
		return ""
	}
	return "ghcr.io/lastcall-dev/lastcall:" + version
}
