package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
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
		return priority(slog.LevelError)
	}
	return ""
}

// priority is how a line begins that has a level of its own in the journal: `journalctl -p
// warning` shows it or not.
func priority(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "<3>"
	case level >= slog.LevelWarn:
		return "<4>"
	case level >= slog.LevelInfo:
		return "<6>"
	}
	return "<7>"
}

// journal writes records with their priorities.
type journal struct {
	slog.Handler
	to *prefixer
}

// prefixer puts a prefix before what is written.
type prefixer struct {
	mu     sync.Mutex
	w      io.Writer
	prefix string
}

// Write implements io.Writer. A handler of slog calls it once for a record, within Handle.
func (p *prefixer) Write(b []byte) (int, error) {
	n, err := p.w.Write(append([]byte(p.prefix), b...))
	return max(0, n-len(p.prefix)), err
}

// Handle implements slog.Handler.
func (j journal) Handle(ctx context.Context, r slog.Record) error {
	j.to.mu.Lock()
	defer j.to.mu.Unlock()
	j.to.prefix = priority(r.Level)
	return j.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (j journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return journal{j.Handler.WithAttrs(attrs), j.to}
}

// WithGroup implements slog.Handler.
func (j journal) WithGroup(name string) slog.Handler {
	return journal{j.Handler.WithGroup(name), j.to}
}
