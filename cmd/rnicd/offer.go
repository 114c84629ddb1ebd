package main

import (
	"fmt"
	"io"
	"math"

	"github.com/rnicd/rnicd/hugepages"
)

// offered is the copy of a file that get may read, in memory that no other is in.
type offered struct {
	path    string
	content []byte // nil: nothing is offered; of an empty file it is empty
	arena   *hugepages.Arena
}

// loadOffered reads --file.
func loadOffered(o *serveOptions, log io.Writer) (*offered, error) {
	f := &offered{path: o.file}
	if o.file == "" {
		if len(o.nic.given("file")) > 0 { // of an unset variable: not a reason to offer nothing
			return nil, fmt.Errorf("--file %q: want the name of a file", o.file)
		}
		return f, nil
	}
	src, length, err := openSource(o.file)
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	defer src.Close()
	if f.content = []byte{}; length == 0 {
		return f, nil
	}
	page, err := parsePage(o.nic.page)
	if err != nil {
		return nil, err
	}
	if f.arena, err = hugepages.New(hugepages.Config{Bytes: int64(min(length, math.MaxInt64)),
		Page: page, Node: hugepages.OnNode(o.nic.node)}); err != nil {
		return nil, fmt.Errorf("--file %s: %w", o.file, err)
	}
	f.content = f.arena.Bytes()[:length]
	if _, err := io.ReadFull(src, f.content); err != nil {
		f.release()
		return nil, fmt.Errorf("--file %s: %w", o.file, err)
	}
	fmt.Fprintf(log, "file        %s of %s on %s pages%s\n", o.file, octets(length),
		pageName(f.arena.PageSize()), fallbackNote(f.arena))
	return f, nil
}

func (f *offered) String() string {
	if f.content == nil {
		return ""
	}
	return fmt.Sprintf(", %s of %d octets", f.path, len(f.content))
}

// release unmaps the copy. No client may be served any more.
func (f *offered) release() {
	if f.arena != nil {
		_ = f.arena.Close() // unmapping what was mapped
	}
}
