//go:build linkerd

package podtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lastcall-dev/lastcall/internal/nettest"
)

// workload is the name in the certificate of the pod's proxy.
const workload = "web.default.serviceaccount.identity.linkerd.cluster.local"

// identity signs the proxy's certificate, as linkerd's identity controller does: without one the proxy serves nothing.
// All other calls of the control plane are answered with UNIMPLEMENTED, after which the proxy uses its defaults.
type identity struct {
	key  *ecdsa.PrivateKey
	root *x509.Certificate
}

func newIdentity(t *testing.T) *identity {
	t.Helper()
	key := newKey(t)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root.linkerd.cluster.local"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	if err == nil {
		root, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &identity{key, root}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// environment is what the proxy reads: its key and request, as linkerd2-proxy-identity writes them, a token, the root.
func (i *identity) environment(t *testing.T) []string {
	t.Helper()
	dir, err := os.MkdirTemp("", "linkerd") // the proxy's user reads it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	key := newKey(t)
	pkcs8, err1 := x509.MarshalPKCS8PrivateKey(key)
	csr, err2 := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: workload}, DNSNames: []string{workload}}, key)
	err = errors.Join(err1, err2, os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "key.p8"), pkcs8, 0o644),
		os.WriteFile(filepath.Join(dir, "csr.der"), csr, 0o644), os.WriteFile(filepath.Join(dir, "token"), []byte("token"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"LINKERD2_PROXY_IDENTITY_DIR=" + dir, "LINKERD2_PROXY_IDENTITY_TOKEN_FILE=" + filepath.Join(dir, "token"),
		"LINKERD2_PROXY_IDENTITY_LOCAL_NAME=" + workload,
		"LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS=" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.root.Raw})),
	}
}

// serve listens in the pod and returns the address.
func (i *identity) serve(t *testing.T, in *nettest.Namespace) string {
	t.Helper()
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		if method != "/io.linkerd.proxy.identity.Identity/Certify" {
			return status.Errorf(codes.Unimplemented, "%s", method)
		}
		var request []byte
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		response, err := i.certify(request)
		if err != nil {
			return status.Errorf(codes.InvalidArgument, "%v", err)
		}
		return stream.SendMsg(&response)
	}))
	ln := in.Listen(t, "tcp", "127.0.0.1:0")
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(server.Stop)
	return ln.Addr().String()
}

// certify answers linkerd2-proxy-api's CertifyRequest (3: the signing request, DER) with a CertifyResponse (1: the
// certificate, 3: its end as a Timestamp).
func (i *identity) certify(request []byte) ([]byte, error) {
	var csr []byte
	for len(request) > 0 {
		number, kind, n := protowire.ConsumeTag(request)
		if n < 0 || kind != protowire.BytesType {
			return nil, fmt.Errorf("field %d of the request: unexpected wire type %d", number, kind)
		}
		value, m := protowire.ConsumeBytes(request[n:])
		if m < 0 {
			return nil, protowire.ParseError(m)
		}
		if number == 3 {
			csr = value
		}
		request = request[n+m:]
	}
	asked, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: asked.DNSNames, NotBefore: time.Now().Add(-time.Minute), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, i.root, asked.PublicKey, i.key)
	if err != nil {
		return nil, err
	}
	stamp := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(until.Unix()))
	out := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), der)
	return protowire.AppendBytes(protowire.AppendTag(out, 3, protowire.BytesType), stamp), nil
}

// rawCodec passes messages as bytes.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
