package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// importImages loads image archives into the node, each under the names that it carries.
func (l layout) importImages(ctx context.Context, archives []string) error {
	for _, archive := range archives {
		if err := l.ctr(ctx, "images", "import", "--all-platforms", archive); err != nil {
			return fmt.Errorf("import %s: %w", archive, err)
		}
	}
	return nil
}

// importPause makes the image that every pod needs.
func (l layout) importPause(ctx context.Context) error {
	folder := l.path("pause")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	program, archive := filepath.Join(folder, "pause"), filepath.Join(folder, "pause.tar")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./lab/e2e/pause")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the pause program: %w\n%s", err, out)
	}
	pack := exec.CommandContext(ctx, "go", "run", "./lab/image", "-name", pauseImage, "-output", archive,
		program, "/pause")
	if out, err := pack.CombinedOutput(); err != nil {
		return fmt.Errorf("make the pause image: %w\n%s", err, out)
	}
	return l.importImages(ctx, []string{archive})
}
