// Package status is what there is to see of a daemon, as its control socket answers it and as
// commands, metrics and pictures are made of it: plain types with their JSON, and the filter of
// connections. Counters have the names of docs/reference/limits.md.
package status
