// Package config reads the daemon's configuration file: TOML, strict. Unknown keys, invalid
// values, and everything else that can be checked without opening a device, are errors. Each
// error has file, line and column, the key, what is wrong and what is expected. All errors are
// reported together.
//
//	config.go     the types: each key with its default and description; the reference is made of them
//	units.go      durations and sizes
//	index.go      line and column of each key
//	parse.go      file to Config
//	defaults.go   defaults of keys that the file does not have
//	validate.go   the checks; ports.go and services.go have those of each table
//	reference.go  docs/reference/configuration.md
package config
