package daemon

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ToJournal says whether w is a stream to systemd's journal, by the variable that systemd sets
// for it.
func ToJournal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	return os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// JournalError begins a line of standard error that is an error to the journal (sd-daemon(3));
// empty where that is no journal.
func JournalError() string {
	if ToJournal(os.Stderr) {
		return prefix(slog.LevelError)
	}
	return ""
}

// priority is how the journal calls a level: `journalctl -p warning` shows it or not.
func priority(level slog.Level) int {
	switch {
	case level >= slog.LevelError:
		return 3
	case level >= slog.LevelWarn:
		return 4
	case level >= slog.LevelInfo:
		return 6
	}
	return 7
}

// prefix begins a line that has a level of its own in the journal.
func prefix(level slog.Level) string { return fmt.Sprintf("<%d>", priority(level)) }

// journalSocket is where the journal takes entries with fields
// (https://systemd.io/JOURNAL_NATIVE_PROTOCOL).
const journalSocket = "/run/systemd/journal/socket"

// entryWriter writes entries, one a Write, to the journal's socket, and lines to its stream. Where
// the socket is missing, or an entry too long for it, the stream gets the message.
type entryWriter struct {
	socket *net.UnixConn // of no peer: a journal that was restarted is found again
	to     *net.UnixAddr
	stream io.Writer
}

// newEntryWriter returns nil where there is no such socket.
func newEntryWriter(path string, stream io.Writer) *entryWriter {
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram"})
	if err != nil {
		return nil
	}
	return &entryWriter{socket, &net.UnixAddr{Name: path, Net: "unixgram"}, stream}
}

// entryHead begins an entry. No line of a log does.
const entryHead = "PRIORITY="

// Write implements io.Writer.
func (w *entryWriter) Write(b []byte) (int, error) {
	rest, isEntry := bytes.CutPrefix(b, []byte(entryHead))
	if !isEntry {
		return w.stream.Write(b)
	}
	if _, err := w.socket.WriteToUnix(b, w.to); err == nil {
		return len(b), nil
	}
	_, message, _ := bytes.Cut(rest, []byte("\nMESSAGE="))
	message, _, _ = bytes.Cut(message, []byte("\n"))
	if _, err := fmt.Fprintf(w.stream, "<%c>%s\n", rest[0], message); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Lines is 1 for an entry.
func (w *entryWriter) Lines(b []byte) uint64 {
	if bytes.HasPrefix(b, []byte(entryHead)) {
		return 1
	}
	return uint64(max(bytes.Count(b, []byte("\n")), 1))
}

// journal writes records with their priorities: as lines, or as entries with fields. The line of a
// record is the message of its entry; each attribute is a field, too.
type journal struct {
	slog.Handler // of the line
	to           *composer
	group        string // before the names of attributes
	fields       []byte // of WithAttrs
}

// composer makes what is written of a line.
type composer struct {
	mu      sync.Mutex
	w       io.Writer
	entries bool
	line    bytes.Buffer
}

// Write implements io.Writer. A handler of slog calls it once for a record, within Handle.
func (c *composer) Write(b []byte) (int, error) { return c.line.Write(b) }

// Handle implements slog.Handler.
func (j journal) Handle(ctx context.Context, r slog.Record) error {
	c := j.to
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line.Reset()
	if err := j.Handler.Handle(ctx, r); err != nil {
		return err
	}
	var out []byte
	if c.entries {
		out = fmt.Appendf(nil, entryHead+"%d\nMESSAGE=%sSYSLOG_IDENTIFIER=rnicd\n", priority(r.Level),
			c.line.Bytes())
		out = append(out, j.fields...)
		r.Attrs(func(a slog.Attr) bool {
			out = appendField(out, j.group, a)
			return true
		})
	} else {
		out = append([]byte(prefix(r.Level)), c.line.Bytes()...)
	}
	_, err := c.w.Write(out)
	return err
}

// WithAttrs implements slog.Handler.
func (j journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	fields := bytes.Clone(j.fields)
	for _, a := range attrs {
		fields = appendField(fields, j.group, a)
	}
	return journal{j.Handler.WithAttrs(attrs), j.to, j.group, fields}
}

// WithGroup implements slog.Handler.
func (j journal) WithGroup(name string) slog.Handler {
	return journal{j.Handler.WithGroup(name), j.to, j.group + name + "_", j.fields}
}

// fieldHead begins the names of fields: others are the journal's, as PRIORITY and UNIT.
const fieldHead = "RNICD_"

// appendField appends an attribute as the journal's protocol has it: a value of several lines with
// its length.
func appendField(to []byte, group string, a slog.Attr) []byte {
	a.Value = a.Value.Resolve()
	if a.Value.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "_"
		}
		for _, b := range a.Value.Group() {
			to = appendField(to, group, b)
		}
		return to
	}
	a = withUnit(a)
	name := fieldHead + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, group+a.Key)
	value := a.Value.String()
	if !strings.Contains(value, "\n") {
		return append(to, name+"="+value+"\n"...)
	}
	to = append(to, name+"\n"...)
	to = binary.LittleEndian.AppendUint64(to, uint64(len(value)))
	return append(to, value+"\n"...)
}
