package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// recipe is the image that the flags describe.
type recipe struct {
	name      name.Tag
	platforms []v1.Platform
	files     []file
	dirs      []folder
	permitted map[string]uint32 // file capabilities by the path in the image, as bits

	entrypoint, command, env []string
	user, output             string
	labels                   map[string]string

	created time.Time
}

// file is a file or a folder's content in the image.
type file struct {
	source string // may contain {os} and {arch}
	dest   string
	mode   int64 // 0: default
}

// folder is an empty one.
type folder struct {
	dest string
	mode int64
}

// capabilityBits are the numbers (linux/capability.h) of the capabilities that an image's file may have.
var capabilityBits = map[string]int{"setpcap": 8, "net_admin": 12}

// read parses the flags.
func (r *recipe) read(named string, platforms, files, dirs, capabilities, labels []string) error {
	var err error
	if r.name, err = name.NewTag(named); err != nil {
		return fmt.Errorf("--name %q: must be NAME:TAG: %w", named, err)
	}
	if !strings.HasSuffix(named, ":"+r.name.TagStr()) { // "latest" is nothing to take by accident
		return fmt.Errorf("--name %q has no tag: must be NAME:TAG", named)
	}
	seen := map[string]bool{}
	for _, text := range platforms {
		p, err := v1.ParsePlatform(text)
		if err != nil || p.OS == "" || p.Architecture == "" {
			return fmt.Errorf("--platform %q: must be OS/ARCH or OS/ARCH/VARIANT", text)
		}
		if seen[p.String()] {
			return fmt.Errorf("--platform %s is given twice", p)
		}
		seen[p.String()] = true
		r.platforms = append(r.platforms, *p)
	}
	for _, text := range files {
		source, dest, err := pair("file", text)
		if err != nil {
			return fmt.Errorf("--file %q: must be SRC=DEST or SRC=DEST:MODE", text)
		}
		dest, mode, err := place("file", dest)
		if err != nil {
			return err
		}
		r.files = append(r.files, file{source, dest, mode})
	}
	for _, text := range dirs {
		dest, mode, err := place("dir", text)
		if err != nil {
			return err
		}
		mode = cmp.Or(mode, 0o755)
		r.dirs = append(r.dirs, folder{dest, mode})
	}
	r.permitted = map[string]uint32{}
	for _, text := range capabilities {
		dest, names, err := pair("capabilities", text)
		if err != nil {
			return err
		}
		for name := range strings.SplitSeq(names, ",") {
			bit, known := capabilityBits[name]
			if !known || !path.IsAbs(dest) {
				return fmt.Errorf(
					"--capabilities %q: must be PATH=NAME[,NAME], an absolute path in the image and names among %s",
					text, strings.Join(slices.Sorted(maps.Keys(capabilityBits)), ", "))
			}
			r.permitted[path.Clean(dest)[1:]] |= 1 << bit
		}
	}
	r.labels = map[string]string{}
	for _, text := range labels {
		k, v, err := pair("label", text)
		if err != nil {
			return err
		}
		r.labels[k] = v
	}
	return nil
}

// place reads DEST[:MODE]. The result has no slash in front.
func place(flag, text string) (dest string, mode int64, err error) {
	dest, octal, hasMode := strings.Cut(text, ":")
	if hasMode {
		n, err := strconv.ParseUint(octal, 8, 12)
		if err != nil || n == 0 {
			return "", 0, fmt.Errorf("--%s %q: mode %q is not octal: must be for example 0755", flag, text, octal)
		}
		mode = int64(n)
	}
	if !path.IsAbs(dest) {
		return "", 0, fmt.Errorf("--%s %q: %q is not an absolute path in the image", flag, text, dest)
	}
	return strings.TrimPrefix(path.Clean(dest), "/"), mode, nil
}

var userPattern = regexp.MustCompile(`^[0-9]+(:[0-9]+)?$`)

// check finds contradictions.
func (r *recipe) check() error {
	switch {
	case r.output == "":
		return errors.New("missing --output FILE")
	case len(r.files) == 0:
		return errors.New("no --file: an image with nothing in it runs nothing")
	case len(r.entrypoint)+len(r.command) == 0:
		return errors.New("missing --entrypoint: the program's path in the image")
	case r.user != "" && !userPattern.MatchString(r.user):
		return fmt.Errorf("--user %q: must be numbers, UID or UID:GID: a scratch image has no passwd", r.user)
	}
	for _, e := range r.env {
		if _, _, err := pair("env", e); err != nil {
			return err
		}
	}
	if r.labels[labelCreated] == "" {
		r.labels[labelCreated] = r.created.Format(time.RFC3339)
	}
	return nil
}

// forPlatform fills in {os} and {arch}.
func (r *recipe) forPlatform(text string, p v1.Platform) string {
	return strings.NewReplacer("{os}", p.OS, "{arch}", p.Architecture).Replace(text)
}

// fullName is a name as containerd writes it. (go-containerregistry writes the host's old name.)
func fullName(t name.Tag) string {
	return strings.Replace(t.Name(), name.DefaultRegistry+"/", "docker.io/", 1)
}
