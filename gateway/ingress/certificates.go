package ingress

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
)

// shown are the certificates for TLS clients.
type shown struct {
	hosts []hosts                         // the oldest Ingress first
	known map[types.NamespacedName]parsed // by Secret, of those in use
}

// hosts is one entry of an Ingress' spec.tls.
type hosts struct {
	names  []string // if empty, those of the certificate
	secret types.NamespacedName
	of     string // name of the Ingress
}

// parsed is a Secret's certificate.
type parsed struct {
	version string           // resourceVersion of the Secret when it was parsed
	cert    *tls.Certificate // the last valid one, or nil
	problem string           // "" if this version is valid
}

// show collects the Secrets in use, and gives their certificates to the gateway.
func (f *Follower) show(b *build, ours []*networkingv1.Ingress) {
	if f.o.Certificates == nil {
		return
	}
	f.shown.hosts = nil
	for _, in := range ours {
		for _, t := range in.Spec.TLS {
			if t.SecretName != "" { // otherwise the default certificate applies
				f.shown.hosts = append(f.shown.hosts, hosts{t.Hosts, types.NamespacedName{Namespace: in.Namespace, Name: t.SecretName}, nameOf(in)})
			}
		}
	}
	f.present(b.problems)
}

// reload applies a changed Secret.
func (f *Follower) reload(secret types.NamespacedName) {
	if _, used := f.shown.known[secret]; !used {
		return
	}
	problems := make(map[string]bool)
	for p := range f.problems {
		if !strings.HasPrefix(p, certificateProblem) {
			problems[p] = true
		}
	}
	f.present(problems)
	f.report(problems)
	if p := f.shown.known[secret].problem; p != "" {
		f.o.Gateway.Reloaded("certificates", errors.New(p))
		return
	}
	f.log.Info("certificate updated", "secret", secret.String())
	f.o.Gateway.Reloaded("certificates", nil)
}

// certificateProblem is the prefix of problems with certificates.
const certificateProblem = "certificate "

// present gives the gateway all certificates in use. If two Ingresses have one for the same host, the older's applies.
func (f *Follower) present(problems map[string]bool) {
	known := make(map[types.NamespacedName]parsed)
	byHost := make(map[string]*tls.Certificate)
	use := func(secret types.NamespacedName, by string) *tls.Certificate {
		p, ok := known[secret]
		if !ok {
			p = f.parse(secret)
			known[secret] = p
		}
		if p.problem != "" {
			problems[fmt.Sprintf("%s%s of %s: %s", certificateProblem, secret, by, p.problem)] = true
		}
		return p.cert
	}
	for _, h := range f.shown.hosts {
		cert := use(h.secret, "ingress "+h.of)
		if cert == nil {
			continue
		}
		names := h.names
		if len(names) == 0 {
			names = cert.Leaf.DNSNames
		}
		for _, name := range names {
			name = strings.ToLower(name)
			if byHost[name] == nil {
				byHost[name] = cert
			}
		}
	}
	fallback := f.o.Fallback
	if f.o.DefaultSecret.Name != "" {
		fallback = nil
		if cert := use(f.o.DefaultSecret, "--default-tls-secret"); cert != nil {
			fallback = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil }
		}
	}
	f.shown.known = known
	f.o.Certificates.Set(byHost, fallback)
}

// parse parses a Secret, unless it is unchanged. When it is invalid or deleted, the previous certificate stays.
func (f *Follower) parse(secret types.NamespacedName) parsed {
	before := f.shown.known[secret]
	kept := ""
	if before.cert != nil {
		kept = "; keeping the previous one"
	}
	s, ok := get[*corev1.Secret](f.secrets, secret.String())
	if !ok {
		return parsed{cert: before.cert, problem: "no such secret of type " + string(corev1.SecretTypeTLS) + kept}
	}
	if before.version == s.ResourceVersion && before.version != "" && before.problem == "" {
		return before
	}
	cert, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return parsed{version: s.ResourceVersion, cert: before.cert, problem: err.Error() + kept}
	}
	if end := cert.Leaf.NotAfter; time.Now().After(end) {
		return parsed{version: s.ResourceVersion, cert: &cert, problem: "expired at " + end.UTC().Format(time.RFC3339)}
	}
	return parsed{version: s.ResourceVersion, cert: &cert}
}
