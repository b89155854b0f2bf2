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

// shown is what is shown to clients that speak TLS.
type shown struct {
	hosts []hosts                         // the oldest Ingress' first
	known map[types.NamespacedName]parsed // of Secrets that are used
}

// hosts is one entry of an Ingress' spec.tls.
type hosts struct {
	names  []string // none: those of the certificate
	secret types.NamespacedName
	of     string // the Ingress
}

// parsed is a Secret's certificate.
type parsed struct {
	version string           // resourceVersion of the Secret as it was looked at last
	cert    *tls.Certificate // the last good one; nil when there has been none
	problem string           // "" when version is good
}

// show takes in which Secrets are used, and shows them.
func (f *Follower) show(b *build, ours []*networkingv1.Ingress) {
	if f.o.Certificates == nil {
		return
	}
	f.shown.hosts = nil
	for _, in := range ours {
		for _, t := range in.Spec.TLS {
			if t.SecretName != "" { // else it is the default certificate
				f.shown.hosts = append(f.shown.hosts, hosts{t.Hosts, types.NamespacedName{Namespace: in.Namespace, Name: t.SecretName}, nameOf(in)})
			}
		}
	}
	f.present(b.problems)
}

// reload works a changed Secret in.
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
	f.tell(problems)
	if p := f.shown.known[secret].problem; p != "" {
		f.o.Gateway.Reloaded("certificates", errors.New(p))
		return
	}
	f.log.Info("a certificate is shown from now on", "secret", secret.String())
	f.o.Gateway.Reloaded("certificates", nil)
}

// certificateProblem begins the problems of present.
const certificateProblem = "certificate "

// present gives the gateway all certificates that are used. Where two Ingresses have one
// for the same host, it is the older's.
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

// parse looks at a Secret, unless it is as it was. One that is bad or gone leaves what was
// there.
func (f *Follower) parse(secret types.NamespacedName) parsed {
	before := f.shown.known[secret]
	kept := ""
	if before.cert != nil {
		kept = "; the one before is kept"
	}
	s, ok := get[*corev1.Secret](f.secrets, secret.String())
	if !ok {
		return parsed{cert: before.cert, problem: "there is no such secret of type " + string(corev1.SecretTypeTLS) + kept}
	}
	if before.version == s.ResourceVersion && before.version != "" && before.problem == "" {
		return before
	}
	cert, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return parsed{version: s.ResourceVersion, cert: before.cert, problem: err.Error() + kept}
	}
	if end := cert.Leaf.NotAfter; time.Now().After(end) {
		return parsed{version: s.ResourceVersion, cert: &cert, problem: "it has expired at " + end.UTC().Format(time.RFC3339)}
	}
	return parsed{version: s.ResourceVersion, cert: &cert}
}
