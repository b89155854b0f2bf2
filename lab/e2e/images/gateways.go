package main

import (
	"errors"
	"fmt"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// controllers are the programs of other gateways, by their images' paths and users.
var controllers = []struct{ name, path, user string }{
	{"contour", "/bin/contour", "65534:65534"},
	{"envoy-gateway", "/usr/local/bin/envoy-gateway", "65532:65532"},
}

// gateways makes the images of other gateways: their control planes, as far as this machine has them, and Envoy alone.
func gateways() error {
	var errs []error
	for _, c := range controllers {
		program, err := peers.Find(c.name)
		if errors.Is(err, peers.ErrMissing) {
			fmt.Println("images:", err)
			continue
		}
		errs = append(errs, err, alone(c.name, program, c.path, c.user))
	}
	envoy, err := peers.Find("envoy")
	return errors.Join(append(errs, err, alone("envoy", envoy, "/usr/local/bin/envoy", "65532:65532"))...)
}

// alone packs one program with its libraries. Manifests name it without a path.
func alone(name, program, path, user string) error {
	return image("local/"+name, func(t *tree) error {
		return errors.Join(t.add(program, path), t.addLibraries(program), t.addTemporary())
	}, []string{path}, "-user", user, "-env", "PATH=/usr/local/bin:/bin")
}
