// Package port opens a device with its memory, its Pollers and an Adapter over them: what a daemon
// and a command do alike before they serve or dial. What a device is, drivers know; a program has
// the drivers of Builtin and adds its own.
//
//	config.go   what a Port is made of, and what of that cannot be
//	driver.go   drivers by name
//	builtin.go  tap, memif, dpdk, and the kernel's sockets
//	port.go     Open, Start, Close
//	addrs.go    when the addresses may be used
//	watch.go    what becomes of the device, its addresses and its places
package port
