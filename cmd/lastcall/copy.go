package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

const copyHelp = `Copy this program to DEST, a file or an existing folder.

Made for an init container: the image has no shell and no cp, and the preStop hook of an app without a sidecar (lastcall
wait --ports) needs the program in a volume of the pod. DEST is replaced atomically. All users may read and run the
copy, none may write it (mode 0555).`

func copyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "copy DEST",
		Short:   "Copy this program into a volume: an init container",
		Long:    copyHelp,
		Example: "  lastcall copy /lastcall-bin/lastcall",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usagef("copy takes one argument, a file or a folder; got %q", args)
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return copySelf(args[0]) },
	}
}

// copySelf copies this program to dest.
func copySelf(dest string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	return copyProgram(self, dest)
}

// copyProgram copies the program at source to dest through a temporary file: the rename is atomic, and an old copy that
// is running keeps its content.
func copyProgram(source, dest string) (err error) {
	if dest, err = copyTarget(dest); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("copy %s to %s: %w", source, dest, err)
		}
	}()
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.CreateTemp(filepath.Dir(dest), ".lastcall-copy-")
	if err != nil {
		return err
	}
	// It does not wait for the disk (fsync), which would delay the pod: Linux reports a full volume to the write, and
	// the pod's volume ends with its node.
	_, err = io.Copy(out, in)
	if err = cmp.Or(err, out.Chmod(0o555), out.Close()); err == nil {
		err = os.Rename(out.Name(), dest)
	}
	if err != nil {
		return errors.Join(err, os.Remove(out.Name()))
	}
	return nil
}

// copyTarget is the file that dest names: in a folder, one with the program's name.
func copyTarget(dest string) (string, error) {
	folder, target := filepath.Dir(filepath.Clean(dest)), filepath.Clean(dest)
	if info, err := os.Stat(dest); strings.HasSuffix(dest, "/") || err == nil && info.IsDir() {
		folder, target = filepath.Clean(dest), filepath.Join(dest, "lastcall")
	}
	info, err := os.Stat(folder)
	switch {
	case err == nil && info.IsDir():
		return target, nil
	case err == nil:
		return "", usagef("copy to %s: %s is not a folder", dest, folder)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "", usagef("copy to %s: no folder %s; in a container, mount the volume there", dest, folder)
	}
	return "", fmt.Errorf("copy to %s: %w", dest, err)
}
