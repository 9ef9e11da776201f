package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// clusterName names cluster and context in our kubeconfigs, and thereby tells
// them from others.
const clusterName = "devcluster"

// kubeconfigFile is the file of Dir with the user's kubeconfig.
func (u User) kubeconfigFile() string {
	if u.File == Admin.File {
		return "kubeconfig"
	}
	return u.File + ".kubeconfig"
}

// writeKubeconfigs writes the kubeconfig of every user to d.
func writeKubeconfigs(d Dir, server string) error {
	for _, u := range users {
		data, err := u.kubeconfig(d, server)
		if err != nil {
			return fmt.Errorf("kubeconfig of %s: %w", u.Name, err)
		}
		if err := writeFile(d.file(u.kubeconfigFile()), data); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfig returns a kubeconfig that needs no other file.
func (u User) kubeconfig(d Dir, server string) ([]byte, error) {
	ca, err := os.ReadFile(d.file(caCertFile))
	if err != nil {
		return nil, err
	}
	token, err := u.token(d)
	if err != nil {
		return nil, err
	}
	config := api.NewConfig()
	config.Clusters[clusterName] = &api.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[u.Name] = &api.AuthInfo{Token: token}
	config.Contexts[clusterName] = &api.Context{Cluster: clusterName, AuthInfo: u.Name}
	config.CurrentContext = clusterName
	return clientcmd.Write(*config)
}

// writeExtraKubeconfig copies the admin's kubeconfig of d to path. It refuses
// to replace a file that is not from devcluster.
func writeExtraKubeconfig(path string, d Dir) error {
	data, err := os.ReadFile(d.file(Admin.kubeconfigFile()))
	if err != nil {
		return err
	}
	old, err := clientcmd.LoadFromFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
	case err != nil:
		return err
	case len(old.Clusters) != 1 || old.Clusters[clusterName] == nil:
		return fmt.Errorf("%s is there and not from devcluster", path)
	}
	return writeFile(path, data)
}
