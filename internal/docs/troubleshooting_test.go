package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// foreign are messages of others: the kernel, systemd, libraries; and values of keys.
var foreign = map[string]bool{
	"Failed to create umem": true, "XDP program already attached": true, "start-limit-hit": true,
	"Watchdog timeout": true, `idle = "spin"`: true, `"pause"`: true, "unresolvable CDI devices": true,
	"GLIBC_2.34' not found":                           true,
	"librnicd_needs_glibc_2_34_or_later_this_is_musl": true, // a symbol
}

// Every message that the guide to troubleshooting quotes in a first column is one of ours, word by
// word as far as it is fixed: what changes stands as ..., or is a value of the example.
func TestQuotedMessages(t *testing.T) {
	var code strings.Builder
	for name, text := range files(t, ".go", ".sh") {
		if !strings.HasSuffix(name, "_test.go") {
			code.WriteString(text)
		}
	}
	values := regexp.MustCompile(`\.\.\.|FILE:3:1: port\.adresses|addresses\?|0000:01:00\.0 has ixgbe`)
	quoted := 0
	for line := range strings.Lines(
		files(t, "/troubleshooting.md")["docs/guides/troubleshooting.md"]) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range span.FindAllStringSubmatch(cells[1], -1) {
			if foreign[m[1]] {
				continue
			}
			for _, piece := range values.Split(m[1], -1) {
				for part := range strings.SplitSeq(piece, ": ") {
					if part = strings.Trim(part, " :"); part == "" || part == "Operation not permitted" {
						continue
					}
					quoted++
					require.True(t, strings.Contains(code.String(), part), "%q of %q is in no source", part, m[1])
				}
			}
		}
	}
	require.Greater(t, quoted, 20)
}
