// Package cdi describes what a container gets of rnicd, in files of the Container Device Interface,
// which podman, containerd, CRI-O and docker read:
//
//	spec.go    the devices that need no switch
//	program.go a device for each program of a switch
//	files.go   writing, finding and removing the files
//
// It opens no device, and starts nothing (docs/adr/0049-containers.md).
package cdi
