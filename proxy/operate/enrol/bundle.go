package enrol

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// Keys of the ConfigMap.
const (
	caKey = "ca.crt" // certificates in PEM, under the key of kube-root-ca.crt
	// AddressesKey has the IP addresses of the tier's Service, with commas between them. Without
	// them no pod is enrolled.
	AddressesKey = "clusterIPs"
)

// newBundle returns the ConfigMap's data. If pods could not reach the tier by its name, err says why,
// and the data has no addresses, so no more pods are enrolled. Without data the authorities themselves
// are not known.
func newBundle(cfg *rest.Config, tls TLSFiles, addresses []string) (data map[string]string, err error) {
	trusted, roots := []byte(nil), x509.NewCertPool()
	cluster := *cfg
	if err := rest.LoadTLSFiles(&cluster); err != nil {
		return nil, err
	}
	tier, err := os.ReadFile(tls.CA)
	if err != nil {
		return nil, err
	}
	for from, content := range map[string][]byte{"the cluster's CA": cluster.CAData, tls.CA: tier} {
		if !roots.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("%s has no certificate", from)
		}
	}
	for _, c := range slices.Concat(certificates(cluster.CAData), certificates(tier)) {
		if !bytes.Contains(trusted, c) {
			trusted = append(trusted, c...)
		}
	}
	data = map[string]string{caKey: string(trusted)}
	switch err := tls.valid(roots); {
	case err != nil:
		return data, err
	case len(addresses) == 0:
		return data, errors.New("the Service has no ClusterIP")
	}
	data[AddressesKey] = strings.Join(addresses, ",")
	return data, nil
}

// certificates returns the certificates of a file in PEM, each in PEM, and nothing else: a key beside
// them is never published.
func certificates(content []byte) (all [][]byte) {
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			all = append(all, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
		}
	}
	return all
}

// TLSFiles are the tier's certificate, with those between it and its authority, and the authority.
type TLSFiles struct{ Cert, CA string }

// valid reports an error if a pod that trusts roots would refuse the tier's certificate.
func (f TLSFiles) valid(roots *x509.CertPool) error {
	chain, err := cert.CertsFromFile(f.Cert)
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{DNSName: Host, Roots: roots, Intermediates: between}); err != nil {
		return fmt.Errorf("pods would refuse the certificate %s: %w", f.Cert, err)
	}
	return nil
}
