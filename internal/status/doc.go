// Package status has the types of a daemon's state, with their JSON, and the filter of
// connections. The control socket answers with them; commands and metrics are made of them.
// Counters have the names of docs/reference/limits.md.
package status
