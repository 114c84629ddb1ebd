// Package config reads the daemon's configuration file: TOML, strict. Unknown keys, invalid
// values, and everything else that can be checked without opening a device, are errors. Each
// error has file, line and column, the key, what is wrong and what is expected. All errors are
// reported together.
//
//	config.go     the types: each key with its default and description; the reference is made of them
//	switch.go     the same of the switch's file
//	parse.go      file to Config (internal/conf reads TOML, internal/port/portfile its ports)
//	removed.go    what a file may no longer say, and what to run instead
//	validate.go   the checks; services.go has those of each service
//	places.go     what two services or ports cannot both have
//	reference.go  docs/reference/configuration.md
package config
