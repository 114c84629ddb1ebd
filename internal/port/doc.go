// Package port opens a device with its memory, its Pollers and an Adapter over them, for the
// daemon and for commands. Drivers open the devices; a program has the drivers of Builtin and may
// add its own.
//
//	config.go   Config and its checks
//	driver.go   drivers by name
//	builtin.go  tap, memif, dpdk, and the kernel's sockets
//	port.go     Open, Start, Close
//	addrs.go    when the addresses may be used
//	watch.go    logs what happens to the device, its addresses and its connection limits
package port
