package main

import (
	"context"
	"os"
)

// importImages loads image archives into the node, each under the names that it carries.
func (l layout) importImages(ctx context.Context, archives []string) error {
	for _, archive := range archives {
		if err := l.ctr(ctx, "images", "import", "--all-platforms", archive); err != nil {
			return err
		}
	}
	return nil
}

// importPause makes the image that every pod needs.
func (l layout) importPause(ctx context.Context) error {
	program, archive := l.path("pause", "pause"), l.path("pause", "pause.tar")
	if err := os.MkdirAll(l.path("pause"), 0o755); err != nil {
		return err
	}
	if err := call(ctx, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program,
		"./lab/e2e/pause"); err != nil {
		return err
	}
	if err := call(ctx, "go", "run", "./lab/image", "-name", pauseImage, "-output", archive,
		program, "/pause"); err != nil {
		return err
	}
	return l.importImages(ctx, []string{archive})
}
