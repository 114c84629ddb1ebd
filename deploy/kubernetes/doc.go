// Command kubernetes is rnicd's device plugin: it offers a node's rnicd to the kubelet as resources
// that pods ask for (docs/guides/kubernetes.md):
//
//	main.go    flags
//	devices.go what a container may be given, and whether that works now
//	memif.go   the programs of the node's switch, from its configuration and its control socket
//	plugin.go  the kubelet's questions, of API v1beta1
//	kubelet.go registration, again after each start of the kubelet
//
// A device is a CDI device of internal/daemon/cdi (docs/adr/0049-containers.md). The plugin gives
// no rights, runs nothing in a pod, and needs nothing of the API server.
package main
