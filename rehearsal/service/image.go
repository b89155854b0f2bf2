package service

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/rehearsal/image"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// unpack unpacks the image and returns how its program runs; remove removes the files. It adds to o.Pod what the image
// sets and the manifest leaves open.
func (o *Options) unpack() (c *strategy.Container, remove func(), err error) {
	dir, err := os.MkdirTemp("", "lastcall-image-")
	if err != nil {
		return nil, nil, fmt.Errorf("create a folder for the image: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	img, err := image.Unpack(o.Image, dir)
	if err == nil {
		c, err = o.container(img)
	}
	if err != nil {
		remove()
		return nil, nil, strategy.OptionError{Err: fmt.Errorf("--image: %w", err)}
	}
	return c, remove, nil
}

// container is the image with the manifest's settings, as Kubernetes combines them.
func (o *Options) container(img *image.Image) (*strategy.Container, error) {
	entrypoint, args := img.Config.Entrypoint, img.Config.Cmd
	if len(o.Pod.Command) > 0 {
		entrypoint, args = o.Pod.Command, nil
	}
	if len(o.Pod.Args) > 0 {
		args = o.Pod.Args
	}
	all := slices.Concat(entrypoint, args)
	if strings.TrimSpace(o.Command) != "" {
		all = []string{"/bin/sh", "-c", "exec " + o.Command}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no command: set --app", o.Image)
	}
	port := cmp.Or(o.Port, o.Pod.Port, img.Port())
	c := &strategy.Container{Root: img.Root, Dir: cmp.Or(o.Pod.Dir, img.Config.WorkingDir, "/")}
	for _, text := range all {
		c.Args = append(c.Args, withPort(text, port))
	}
	for _, text := range img.Config.Env {
		c.Env = append(c.Env, withPort(text, port))
	}
	o.Pod.Env = slices.Clone(o.Pod.Env)
	for i, text := range o.Pod.Env {
		o.Pod.Env[i] = withPort(text, port)
	}
	if s := img.Config.StopSignal; s != "" && o.Pod.StopSignal == 0 {
		number, _ := strconv.Atoi(s) // STOPSIGNAL takes both
		if o.Pod.StopSignal = cmp.Or(unix.SignalNum(s), unix.SignalNum("SIG"+s), syscall.Signal(number)); o.Pod.StopSignal <= 0 || o.Pod.StopSignal > 64 {
			return nil, fmt.Errorf("%s has an unknown stop signal, %q", o.Image, s)
		}
	}
	if user := img.Config.User; user != "" && user != "0" && user != "root" {
		o.Pod.Notes = append(o.Pod.Notes, "the image's user "+user+" is root of a user namespace here")
	}
	return c, nil
}

// withPort replaces a port, as a whole number, by the placeholder of the assigned one.
func withPort(text string, port int) string {
	if port == 0 {
		return text
	}
	return regexp.MustCompile(`\b`+strconv.Itoa(port)+`\b`).ReplaceAllLiteralString(text, "{port}")
}
