package webhook

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// sharedCluster is the cluster that the replicas of a test share.
type sharedCluster struct {
	mu      sync.Mutex
	data    map[string][]byte
	version int
	trusted []byte
	writes  int
	broken  error
}

func (c *sharedCluster) Secret(context.Context) (map[string][]byte, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.data == nil {
		return nil, "", c.broken
	}
	return maps.Clone(c.data), strconv.Itoa(c.version), c.broken
}

func (c *sharedCluster) PutSecret(_ context.Context, data map[string][]byte, version string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := strconv.Itoa(c.version); c.data == nil && version != "" || c.data != nil && version != have {
		return ErrConflict
	}
	c.data, c.version, c.writes = maps.Clone(data), c.version+1, c.writes+1
	return nil
}

func (c *sharedCluster) Trust(_ context.Context, bundle []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trusted = bundle
	return nil
}

// roots are the authorities that the API server trusts.
func (c *sharedCluster) roots(t *testing.T) *x509.CertPool {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.trusted) {
		t.Fatal("nothing is trusted")
	}
	return pool
}

func replica(c Cluster) *Own {
	return &Own{Cluster: c, Names: []string{"hook.system.svc"}, Log: slog.New(slog.DiscardHandler)}
}

func trusts(t *testing.T, c *sharedCluster, o *Own, now time.Time) error {
	t.Helper()
	cert, err := o.Certificate(nil)
	if err != nil {
		return err
	}
	_, err = cert.Leaf.Verify(x509.VerifyOptions{DNSName: "hook.system.svc", Roots: c.roots(t), CurrentTime: now})
	return err
}

// TestRotation plays two replicas that look at different times, one of them
// seldom, through 500 days: at no moment does one serve what is not
// trusted.
func TestRotation(t *testing.T) {
	c := &sharedCluster{}
	often, seldom := replica(c), replica(c)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	signers := map[string]bool{}
	seen := map[string]string{} // what was verified last, by replica
	for steps := range 500 * 24 / 8 {
		hours := 8 * steps
		now := begin.Add(time.Duration(hours) * time.Hour)
		must.Do(t, often.Look(t.Context(), now))
		if steps%2 == 0 {
			must.Do(t, seldom.Look(t.Context(), now))
		}
		for name, o := range map[string]*Own{"often": often, "seldom": seldom} {
			cert, err := o.Certificate(nil)
			if err != nil || now.After(cert.Leaf.NotAfter) {
				t.Fatalf("%v: the replica that looks %s has no valid certificate: %v", now, name, err)
			}
			is := string(cert.Certificate[0]) + string(c.trusted)
			if is == seen[name] {
				continue
			}
			seen[name] = is
			if err := trusts(t, c, o, now); err != nil {
				t.Fatalf("%v: the replica that looks %s is not trusted: %v", now, name, err)
			}
		}
		signers[string(often.signer)] = true
		if n := bytes.Count(c.trusted, []byte("BEGIN CERT")); n > 3 {
			t.Fatalf("%v: %d authorities are trusted", now, n)
		}
	}
	if len(signers) != 3 {
		t.Errorf("%d authorities in 500 days, want 3: one each eight months", len(signers))
	}
}

func TestManyReplicasAgreeOnOneAuthority(t *testing.T) {
	c := &sharedCluster{}
	now := time.Now()
	replicas := make([]*Own, 8)
	var all sync.WaitGroup
	for i := range replicas {
		replicas[i] = replica(c)
		all.Go(func() {
			if err := replicas[i].Look(t.Context(), now); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if c.writes != 1 {
		t.Errorf("the secret was written %d times", c.writes)
	}
	for _, o := range replicas {
		if err := trusts(t, c, o, now); err != nil {
			t.Error(err)
		}
	}
}

func TestASecretThatIsBrokenIsMadeAnew(t *testing.T) {
	now := time.Now()
	expired, err := fresh(keyCert, keyKey, nil, now.Add(-2*authorityLife))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]map[string][]byte{
		"empty":   {},
		"garbage": {keyCert: []byte("x"), keyKey: []byte("y")},
		"expired": expired,
		"no key":  {keyCert: expired[keyCert]},
	} {
		t.Run(name, func(t *testing.T) {
			c := &sharedCluster{data: data}
			o := replica(c)
			must.Do(t, o.Look(t.Context(), now))
			if err := trusts(t, c, o, now); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestACertificateOutlivesTheAPIServersFaults(t *testing.T) {
	c := &sharedCluster{}
	o := replica(c)
	now := time.Now()
	if _, err := o.Certificate(nil); err == nil {
		t.Error("there is a certificate before the first look")
	}
	must.Do(t, o.Look(t.Context(), now))
	c.broken = errors.New("the API server is away")
	if err := o.Look(t.Context(), now.Add(20*time.Hour)); !errors.Is(err, c.broken) {
		t.Errorf("error %v", err)
	}
	if err := trusts(t, c, o, now.Add(20*time.Hour)); err != nil {
		t.Error(err)
	}
}

func TestBundleHasWhatIsValidOnce(t *testing.T) {
	now := time.Now()
	a, err := fresh(keyCert, keyKey, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := fresh(keyCert, keyKey, nil, now.Add(-2*authorityLife))
	if err != nil {
		t.Fatal(err)
	}
	got := bundle(map[string][]byte{
		keyCert: bytes.TrimSpace(a[keyCert]), // as edited by hand
		keyOld:  append(gone[keyCert], a[keyCert]...),
	}, now, keyCert, keyNextCert, keyOld)
	if !bytes.Equal(got, a[keyCert]) {
		t.Errorf("%s", got)
	}
}
