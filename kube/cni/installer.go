package cni

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
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

// account is where Kubernetes puts the credentials of a pod.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// DaemonSet is the DaemonSet that the installer belongs to. It is read with net/http: a client library would make the
// program on the nodes several times as large.
type DaemonSet struct {
	Name string
	Dir  string // the folder with token, ca.crt and namespace; empty: that of the pod

	hasRead bool
}

// IsRemoved reports whether the DaemonSet is gone or about to go. Once it has been read, the loss of the right to read
// it means so as well: the account and its role are removed with the DaemonSet.
func (d *DaemonSet) IsRemoved(ctx context.Context) (bool, error) {
	status, body, err := d.get(ctx)
	if err != nil {
		return false, fmt.Errorf("read DaemonSet %s: %w", d.Name, err)
	}
	switch {
	case status == http.StatusNotFound, d.hasRead && (status == http.StatusForbidden || status == http.StatusUnauthorized):
		return true, nil
	case status != http.StatusOK:
		return false, fmt.Errorf("read DaemonSet %s: the API server answered %d", d.Name, status)
	}
	var found struct {
		Metadata struct {
			DeletionTimestamp string `json:"deletionTimestamp"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &found); err != nil {
		return false, fmt.Errorf("read DaemonSet %s: %w", d.Name, err)
	}
	d.hasRead = true
	return found.Metadata.DeletionTimestamp != "", nil
}

// maxObject is the most that is read of an answer, in bytes.
const maxObject = 3 << 20

func (d *DaemonSet) get(ctx context.Context) (status int, body []byte, err error) {
	dir, host := cmp.Or(d.Dir, account), os.Getenv("KUBERNETES_SERVICE_HOST")
	if host == "" {
		return 0, nil, errors.New("KUBERNETES_SERVICE_HOST is not set: this is not a pod")
	}
	api := "https://" + net.JoinHostPort(host, os.Getenv("KUBERNETES_SERVICE_PORT"))
	var text [3]string
	for i, name := range []string{"token", "namespace", "ca.crt"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return 0, nil, err
		}
		text[i] = strings.TrimSpace(string(b))
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(text[2])) {
		return 0, nil, fmt.Errorf("%s has no certificate", filepath.Join(dir, "ca.crt"))
	}
	tlsConfig := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	transport := &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}
	site := api + "/apis/apps/v1/namespaces/" + text[1] + "/daemonsets/" + d.Name
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, site, nil)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+text[0])
	request.Header.Set("Accept", "application/json")
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxObject))
	return response.StatusCode, body, err
}
