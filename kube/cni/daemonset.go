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
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

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
