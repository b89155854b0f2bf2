// Admission measures what the webhook costs each new pod: reviews of different pods over TLS with keep-alive, as the API server sends
// them, first at a steady rate and then as many as it answers. The webhook runs on one core
// (lastcall-controller --offline, GOMAXPROCS=1), the load on another.
//
//	make build && go run ./lab/bench/admission
//	go run ./lab/bench/admission -rate 200 -duration 30s
//	go run ./lab/bench/admission -attack empty      # and once more while 24 clients send pods of 200,000 containers
//
// A review's time counts from the moment at which it was due, so that a webhook that stalls does not hide
// behind a client that waits.
package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	admission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/kube/podgen"
)

var (
	binary   = flag.String("controller", "bin/lastcall-controller", "the `program` to measure")
	rate     = flag.Int("rate", 200, "reviews a second, 1 to 10000")
	duration = flag.Duration("duration", 10*time.Second, "how long at that rate, and how long at the most that it answers")
	warmUp   = flag.Duration("warm-up", 2*time.Second, "how long before, at the same rate, uncounted")
	count    = flag.Int("pods", 1000, "how many different pods, 1 to 10000")
	seed     = flag.Uint64("seed", 1, "of the pods")
	hookCore = flag.Int("webhook-core", 0, "the core that the webhook runs on")
	loadCore = flag.Int("load-core", 1, "the core that the load runs on")
	attacked = flag.String("attack", "", "what other clients send meanwhile: empty, names, large or bound (attack.go); empty for no such run")
	at       = flag.String("path", "/inject/namespace", "the path: /inject/namespace, /inject/pod or /lint")
)

func main() {
	flag.Parse()
	if url := os.Getenv("ATTACK_URL"); url != "" {
		fmt.Fprintln(os.Stderr, "admission:", attack(*attacked, url, os.Getenv("ATTACK_ROOTS")))
		return
	}
	if *rate < 1 || *rate > 10_000 || *count < 1 || *count > 10_000 || *duration < time.Second || *warmUp < 0 || *hookCore == *loadCore {
		fmt.Fprintln(os.Stderr, "admission: -rate and -pods take 1 to 10000, -duration 1s or more, -warm-up 0s or more, and the two cores must differ")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 3*(*duration)+*warmUp+time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "admission:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "lastcall-admission-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	roots, err := certify(dir)
	if err != nil {
		return err
	}
	if err := pin(os.Getpid(), *loadCore); err != nil {
		return err
	}
	hook, address, err := start(ctx, dir)
	if err != nil {
		return err
	}
	defer func() {
		_ = hook.Process.Kill()
		_ = hook.Wait()
	}()
	reviews, err := reviewsOf()
	if err != nil {
		return err
	}
	l := &load{url: "https://" + address + *at, reviews: reviews, client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12},
	}}}
	if err := l.ready(ctx); err != nil {
		return err
	}
	if *warmUp > 0 {
		l.steady(ctx, *rate, *warmUp)
	}
	used := cpuTime(hook.Process.Pid)
	steady := l.steady(ctx, *rate, *duration)
	used = cpuTime(hook.Process.Pid) - used
	var under *result
	var usedUnder time.Duration
	if *attacked != "" {
		if _, err := attackBody(*attacked); err != nil {
			return err
		}
		c, err := startAttack(ctx, *attacked, l.url, filepath.Join(dir, "tls.crt"))
		if err != nil {
			return fmt.Errorf("start the attack: %w", err)
		}
		l.steady(ctx, *rate, *warmUp) // its clients shake hands
		usedUnder = cpuTime(hook.Process.Pid)
		under = l.steady(ctx, *rate, *duration)
		usedUnder = cpuTime(hook.Process.Pid) - usedUnder
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	usedMost := cpuTime(hook.Process.Pid)
	most := l.most(ctx, *duration, 8)
	usedMost = cpuTime(hook.Process.Pid) - usedMost
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("it took too long, or was stopped: %w", err)
	}
	memory := resident(hook.Process.Pid)
	fmt.Printf("%s, %d different pods, HTTP/2 over TLS, the webhook on one core:\n\n", *at, *count)
	fmt.Printf("| | reviews/s | p50 | p99 | p99.9 | longest | failed | of the core | a review |\n|---|---|---|---|---|---|---|---|---|\n")
	fmt.Printf("| at %d/s for %s | %s | %s |\n", *rate, *duration, steady, steady.cost(used))
	if under != nil {
		fmt.Printf("| the same, attacked (%s) | %s | %s |\n", *attacked, under, under.cost(usedUnder))
	}
	fmt.Printf("| the most, 8 at a time | %s | %s |\n\n", most, most.cost(usedMost))
	fmt.Printf("Answers: %s. Resident: %.0f MB.\n", steady.outcomes(), float64(memory)/1e6)
	if steady.failed+most.failed > 0 {
		return fmt.Errorf("%d reviews failed; the last: %w", steady.failed+most.failed, errors.Join(steady.err, most.err))
	}
	return nil
}

// reviewsOf are the pods' creations, as the API server sends them.
func reviewsOf() ([][]byte, error) {
	var all [][]byte
	for i, pod := range podgen.Pods(*seed, *count) {
		raw, err := json.Marshal(pod)
		if err != nil {
			return nil, err
		}
		kind := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
		text, err := json.Marshal(admission.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
			Request: &admission.AdmissionRequest{
				UID: types.UID("uid-" + strconv.Itoa(i)), Kind: kind, RequestKind: &kind, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
				Name: pod.Name, Namespace: "shop", Operation: admission.Create, Object: runtime.RawExtension{Raw: raw},
			},
		})
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, nil
}

// certify writes a certificate for localhost.
func certify(dir string) (*x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return nil, err
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return roots, nil
}

// start starts the webhook on its core.
func start(ctx context.Context, dir string) (*exec.Cmd, string, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	address := free.Addr().String()
	_ = free.Close()
	// Its log is a file, as it is a pipe in a pod.
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, "", err
	}
	defer log.Close()
	hook := exec.CommandContext(ctx, "taskset", "-c", strconv.Itoa(*hookCore), *binary, "--offline", "--image", "lastcall:bench",
		"--cert-file", filepath.Join(dir, "tls.crt"), "--key-file", filepath.Join(dir, "tls.key"), "--listen", address, "--plain-listen", "127.0.0.1:0")
	hook.Env = append(os.Environ(), "GOMAXPROCS=1")
	hook.Stderr = log
	if err := hook.Start(); err != nil {
		return nil, "", fmt.Errorf("start %s (make build makes it): %w", *binary, err)
	}
	return hook, address, nil
}

// pin puts this process on a core.
func pin(pid, core int) error {
	out, err := exec.Command("taskset", "-a", "-p", "-c", strconv.Itoa(core), strconv.Itoa(pid)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("taskset: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
