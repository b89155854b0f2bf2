// Package image unpacks container images from files, without an engine and without a registry: what docker save, podman
// save and skopeo write, and tars of OCI image layouts, with layers as they are, by gzip or by zstd.
//
// A file is not trusted: its files and bytes have bounds, and no name or link in it can place anything outside of the
// folder (os.Root). Owners, devices and set-user-ID bits are left out: an unprivileged user unpacks it.
package image
