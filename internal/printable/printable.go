// Package printable makes text of others safe for a terminal or a log: of a peer, a daemon, a
// switch or a file. Control characters, such as those that begin an escape sequence, marks that
// change the direction of writing, and octets that are no UTF-8 become \x1b, \u202e and the like.
// What can be seen stays as it is. JSON text stays JSON text of the same meaning, if its encoder
// leaves no control characters below the space in strings, as that of encoding/json does.
package printable

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text is s on one line. It returns s itself where there is nothing to change. Any goroutine.
func Text(s string) string { return escape(s, "") }

// Lines is s with its line breaks and tabs. Any goroutine.
func Lines(s string) string { return escape(s, "\n\t") }

func escape(s, keep string) string {
	at := strings.IndexFunc(s, func(r rune) bool { return foreign(r, keep) })
	if at < 0 {
		return s
	}
	var b strings.Builder
	for at = 0; at < len(s); {
		r, n := utf8.DecodeRuneInString(s[at:])
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteString(`\x` + hex(s[at]))
		case !foreign(r, keep):
			b.WriteString(s[at : at+n])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ':
			b.WriteString(`\x` + hex(s[at]))
		default:
			for _, u := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&b, `\u%04x`, u)
			}
		}
		at += n
	}
	return b.String()
}

// foreign says whether r is to be escaped; U+FFFD is, as it may stand for an octet that is no
// UTF-8.
func foreign(r rune, keep string) bool {
	return r == utf8.RuneError || !unicode.IsPrint(r) && !strings.ContainsRune(keep, r)
}

func hex(b byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[b>>4], digits[b&15]})
}

// Writer passes on what is written to it as Lines. A Write has whole characters. It is as safe for
// several goroutines as to is.
type Writer struct{ to io.Writer }

// New makes a Writer.
func New(to io.Writer) Writer { return Writer{to} }

// Write returns how much of b was written: all or nothing.
func (w Writer) Write(b []byte) (int, error) {
	if _, err := io.WriteString(w.to, Lines(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}
