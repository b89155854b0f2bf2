// Package linkerd is as much of linkerd's control plane as its proxy needs to serve: it signs the proxy's certificate.
// All other calls are answered with UNIMPLEMENTED, after which the proxy uses its defaults.
package linkerd

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
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// workload is the name in the certificate of the pod's proxy.
const workload = "web.default.serviceaccount.identity.linkerd.cluster.local"

// Identity signs certificates with a root of its own, as linkerd's identity controller does.
type Identity struct {
	key  *ecdsa.PrivateKey
	root *x509.Certificate
}

// NewIdentity makes a root that is valid for an hour.
func NewIdentity() (*Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
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
		return nil, fmt.Errorf("make a root certificate: %w", err)
	}
	return &Identity{key, root}, nil
}

// Environment writes what a proxy reads into the folder, its key and request as linkerd2-proxy-identity does and a
// token, and returns its variables: those, and control as the address of all controllers.
func (i *Identity) Environment(dir, control string) ([]string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	pkcs8, err1 := x509.MarshalPKCS8PrivateKey(key)
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: workload}, DNSNames: []string{workload}}
	csr, err2 := x509.CreateCertificateRequest(rand.Reader, template, key)
	// The proxy's user reads the files.
	err = errors.Join(err1, err2,
		os.WriteFile(filepath.Join(dir, "key.p8"), pkcs8, 0o644),          //nolint:gosec
		os.WriteFile(filepath.Join(dir, "csr.der"), csr, 0o644),           //nolint:gosec
		os.WriteFile(filepath.Join(dir, "token"), []byte("token"), 0o644)) //nolint:gosec
	if err != nil {
		return nil, fmt.Errorf("write an identity: %w", err)
	}
	anchors := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.root.Raw})
	return []string{
		"LINKERD2_PROXY_IDENTITY_DIR=" + dir, "LINKERD2_PROXY_IDENTITY_TOKEN_FILE=" + filepath.Join(dir, "token"),
		"LINKERD2_PROXY_IDENTITY_LOCAL_NAME=" + workload,
		"LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS=" + string(anchors),
		"LINKERD2_PROXY_IDENTITY_SVC_ADDR=" + control, "LINKERD2_PROXY_DESTINATION_SVC_ADDR=" + control,
		"LINKERD2_PROXY_POLICY_SVC_ADDR=" + control,
		"LINKERD2_PROXY_POLICY_WORKLOAD={}", "LINKERD2_PROXY_INBOUND_DEFAULT_POLICY=all-unauthenticated",
	}, nil
}

// Server returns the control plane; its caller serves and stops it.
func (i *Identity) Server() *grpc.Server {
	certify := func(_ any, stream grpc.ServerStream) error {
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
	}
	return grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(certify))
}

// certify answers linkerd2-proxy-api's CertifyRequest (3: the signing request, DER) with a CertifyResponse (1: the
// certificate, 3: its end as a Timestamp).
func (i *Identity) certify(request []byte) ([]byte, error) {
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
	signingRequest, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: signingRequest.DNSNames,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: until,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, i.root, signingRequest.PublicKey, i.key)
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
