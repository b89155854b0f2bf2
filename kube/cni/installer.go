package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Installer keeps the plugin installed on a node.
type Installer struct {
	Node    Node
	Program []byte // the plugin

	// IsRemoved reports whether the plugin is to be removed from the node when the installer ends. It is called from the
	// start on until it has answered once.
	IsRemoved func(context.Context) (bool, error)

	Log *slog.Logger
}

const (
	// pause is the shortest time between two changes. It doubles, up to interval, against another program that always
	// writes its own configuration back.
	pause = time.Second

	// interval is the longest time between two looks, for changes that have not been reported.
	interval = time.Minute

	// askTime limits the question whether to remove the plugin.
	askTime = 5 * time.Second
)

// Run installs the plugin, and again when another program changes the node's configuration, until ctx ends. Then it
// removes it if IsRemoved.
func (i *Installer) Run(ctx context.Context) error {
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the network configuration: %w", err)
	}
	defer func() { _ = watch.Close() }()
	for _, folder := range []string{i.Node.Lists, i.Node.Programs} {
		if err := watch.Add(folder); err != nil {
			return fmt.Errorf("watch %s: %w", folder, err)
		}
	}
	reported, last, between, isKnown := "nothing yet", time.Time{}, pause, false
	for ctx.Err() == nil {
		isChanged, err := i.Node.Install(i.Program)
		text := ""
		switch {
		case errors.Is(err, errNoNetwork):
			text = "waiting for the node's network: " + err.Error()
		case err != nil:
			text = "the plugin is not installed: " + err.Error()
		case isChanged || reported != "":
			i.Log.Info("the plugin is installed", "programs", i.Node.Programs, "configuration", i.Node.Lists)
		}
		if text != "" && text != reported {
			i.Log.Warn(text)
		}
		reported = text
		if !isKnown {
			_, err := i.isRemoved(ctx)
			isKnown = err == nil
		}
		if isChanged {
			if between = min(2*between, interval); time.Since(last) > interval {
				between = pause
			}
			last = time.Now()
			select {
			case <-time.After(between):
			case <-ctx.Done():
			}
		}
		if err := i.await(ctx, watch); err != nil {
			return err
		}
	}
	return i.end(context.WithoutCancel(ctx))
}

// await returns when something in the folders may have changed.
func (i *Installer) await(ctx context.Context, watch *fsnotify.Watcher) error {
	again := time.NewTimer(interval)
	defer again.Stop()
	for {
		select {
		case event := <-watch.Events:
			if event.Has(fsnotify.Remove|fsnotify.Rename) && (event.Name == i.Node.Lists || event.Name == i.Node.Programs) {
				return fmt.Errorf("%s was removed: starting again finds the new one", event.Name)
			}
			base := filepath.Base(event.Name)
			if base != temporary && (base == Name || filepath.Dir(event.Name) == i.Node.Lists) {
				return nil
			}
		case err := <-watch.Errors: // more events than the kernel keeps
			i.Log.Warn("watch the network configuration", "error", err)
			return nil
		case <-again.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// end removes the plugin if it is to be removed. In doubt it stays: it does nothing to pods that are not marked.
func (i *Installer) end(ctx context.Context) error {
	isRemoved, err := i.isRemoved(ctx)
	if err != nil {
		i.Log.Warn("the plugin stays on the node, since the API server does not show whether to remove it", "error", err)
		return nil
	}
	if !isRemoved {
		i.Log.Info("the plugin stays on the node for the next installer")
		return nil
	}
	if err := i.Node.Remove(); err != nil {
		return fmt.Errorf("remove the plugin: %w", err)
	}
	i.Log.Info("the plugin is removed", "configuration", i.Node.Lists)
	return nil
}

func (i *Installer) isRemoved(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return i.IsRemoved(ctx)
}
