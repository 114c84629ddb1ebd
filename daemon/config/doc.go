// Package config is the daemon's configuration file: TOML, strict. A key that is not known, a value
// that cannot be, and whatever can be judged without opening a device is an error with file, line
// and column, the key, what is wrong, and what would be right; all that can be found at once are
// told at once.
//
//	config.go     the types: each key with its default and what it says, of which the reference is made
//	units.go      durations and sizes
//	index.go      where in the file a key stands
//	parse.go      file to Config
//	defaults.go   what is not in the file
//	validate.go   what cannot be; ports.go and services.go by table
//	reference.go  docs/reference/configuration.md
package config
