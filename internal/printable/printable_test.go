package printable

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "",
		`plain, "quoted" \ größer 中文`: `plain, "quoted" \ größer 中文`,
		"\x1b]0;title\x07\x1b[31m":    `\x1b]0;title\x07\x1b[31m`,
		"\u009b2J":                    `\u009b2J`, // CSI of eight bits
		"\x9b2J\xff":                  `\x9b2J\xff`,
		"a\nb\tc\rd\x7f":              `a\nb\tc\x0dd\u007f`,
		"\u202eevil\u2066\u200b":      `\u202eevil\u2066\u200b`,
		"\ufffd":                      `\ufffd`,
		"\U000e0041":                  `\udb40\udc41`,
	} {
		require.Equal(t, want, Text(in))
		require.Equal(t, want, Text(Text(in)), "once is enough")
	}
	require.Equal(t, "a\n\tb\\x1b", Lines("a\n\tb\x1b"))
	is, err := json.Marshal("\x1b\x7f\u009b\u202e\U000e0041 größer")
	require.NoError(t, err)
	var back string
	require.NoError(t, json.Unmarshal([]byte(Text(string(is))), &back))
	require.Equal(t, "\x1b\x7f\u009b\u202e\U000e0041 größer", back)
	require.NotContains(t, Text(string(is)), "\u009b")
	var b strings.Builder
	n, err := New(&b).Write([]byte("x\x1b\n"))
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, "x\\x1b\n", b.String())
}

func FuzzText(f *testing.F) {
	f.Add("\x1b[2J\x80\u202e\n")
	f.Fuzz(func(t *testing.T, s string) {
		out := Text(s)
		for _, r := range out {
			require.False(t, foreign(r, ""), "%q of %q", r, s)
		}
		require.Equal(t, out, Text(out))
	})
}
