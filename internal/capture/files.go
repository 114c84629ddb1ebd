package capture

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Block types and options of pcapng that Files looks at.
const (
	blockSection    = 0x0a0d0d0a
	blockInterface  = 1
	blockStatistics = 5
	blockPacket     = 6

	byteOrderMagic = 0x1a2b3c4d
	optionEnd      = 0
	optionIfDrop   = 5 // isb_ifdrop

	blockMax   = 1 << 20 // octets: more than any frame and what is said of it
	sectionMax = 64      // interfaces of a section
)

// FilesConfig says where Files writes to.
type FilesConfig struct {
	Path    string    // of the file; of several, with a number before the extension
	Out     io.Writer // instead of Path
	SizeMax int64     // octets after which the next file begins; 0: there is one file
	Count   int       // files, of which the oldest is overwritten; 0: no end
}

// Files takes a pcapng stream, as a Capture writes it, and puts it into files, each complete with
// section and interfaces. One goroutine.
type Files struct {
	cfg     FilesConfig
	block   []byte // as far as it has come
	head    []byte // section header and interfaces, which each file begins with
	intfs   int
	file    *os.File
	out     *bufio.Writer
	size    int64
	next    int
	written uint64
	dropped map[uint32]uint64
}

// NewFiles makes the first file, readable by its owner only; one that is there is overwritten.
// Errors as of Create.
func NewFiles(cfg FilesConfig) (*Files, error) {
	switch {
	case cfg.SizeMax < 0 || cfg.Count < 0:
		return nil, fmt.Errorf("capture: files of %d octets, %d of them; must be positive, or 0 "+
			"for no end", cfg.SizeMax, cfg.Count)
	case cfg.SizeMax > 0 && cfg.Out != nil:
		return nil, fmt.Errorf("capture: what is no file has no size at which the next one begins")
	case cfg.Count > 0 && cfg.SizeMax == 0:
		return nil, fmt.Errorf("capture: %d files, and no size at which the next one begins", cfg.Count)
	}
	f := &Files{cfg: cfg, dropped: map[uint32]uint64{}}
	if cfg.Out != nil {
		f.out = bufio.NewWriter(cfg.Out)
		return f, nil
	}
	return f, f.open()
}

// Name is that of the i-th file.
func (c *FilesConfig) Name(i int) string {
	if c.SizeMax == 0 {
		return c.Path
	}
	width := 1
	if c.Count > 0 {
		i %= c.Count
		width = len(fmt.Sprint(c.Count - 1))
	}
	ext := filepath.Ext(c.Path)
	return fmt.Sprintf("%s.%0*d%s", strings.TrimSuffix(c.Path, ext), width, i, ext)
}

func (f *Files) open() (err error) {
	if f.file, err = create(f.cfg.Name(f.next)); err != nil {
		return err
	}
	f.next++
	f.size = 0
	f.out = bufio.NewWriter(f.file)
	return f.put(f.head)
}

func (f *Files) put(b []byte) error {
	n, err := f.out.Write(b)
	f.size += int64(n)
	return err
}

func (f *Files) shut() error {
	err := f.out.Flush()
	if f.file != nil {
		if e := f.file.Close(); err == nil {
			err = e
		}
	}
	return err
}

// Write takes the next octets of the stream. What is whole of them is in the file when it returns.
func (f *Files) Write(p []byte) (int, error) {
	f.block = append(f.block, p...)
	rest := f.block
	for {
		n, err := blockLen(rest)
		if err != nil {
			return 0, err
		}
		if n == 0 || len(rest) < n {
			break
		}
		if err := f.take(rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	f.block = f.block[:copy(f.block, rest)]
	return len(p), f.out.Flush()
}

// blockLen is the length of the block that begins with b, 0 while that is not known.
func blockLen(b []byte) (int, error) {
	if len(b) < 12 {
		return 0, nil
	}
	n := binary.LittleEndian.Uint32(b[4:])
	if binary.LittleEndian.Uint32(b) == blockSection &&
		binary.LittleEndian.Uint32(b[8:]) != byteOrderMagic || n < 12 || n%4 != 0 || n > blockMax {
		return 0, fmt.Errorf("capture: this is no pcapng of a Capture")
	}
	return int(n), nil
}

func (f *Files) take(b []byte) error {
	switch kind := binary.LittleEndian.Uint32(b); kind {
	case blockSection:
		f.head, f.intfs = append([]byte(nil), b...), 0
	case blockInterface:
		if f.intfs++; f.intfs > sectionMax {
			return fmt.Errorf("capture: more than %d interfaces", sectionMax)
		}
		f.head = append(f.head, b...)
	case blockPacket:
		f.written++
		if f.cfg.SizeMax > 0 && f.size+int64(len(b)) > f.cfg.SizeMax && f.size > int64(len(f.head)) {
			if err := f.shut(); err != nil {
				return err
			}
			if err := f.open(); err != nil {
				return err
			}
		}
	case blockStatistics:
		f.statistics(b)
	}
	return f.put(b)
}

// statistics reads how many frames are missing of an interface.
func (f *Files) statistics(b []byte) {
	if len(b) < 24 {
		return
	}
	intf := binary.LittleEndian.Uint32(b[8:])
	for b = b[20 : len(b)-4]; len(b) >= 4; {
		code, n := binary.LittleEndian.Uint16(b), int(binary.LittleEndian.Uint16(b[2:]))
		if code == optionEnd || len(b)-4 < (n+3)&^3 {
			return
		}
		if code == optionIfDrop && n == 8 && intf < sectionMax {
			f.dropped[intf] = binary.LittleEndian.Uint64(b[4:])
		}
		b = b[4+(n+3)&^3:]
	}
}

// Counters are those of the stream so far: Dropped as its statistics say.
func (f *Files) Counters() Counters {
	n := Counters{Written: f.written}
	for _, d := range f.dropped {
		n.Dropped += d
	}
	return n
}

// Close ends the last file. An error says that the stream ended within a block, or that the file
// could not be written.
func (f *Files) Close() error {
	err := f.shut()
	if err == nil && len(f.block) > 0 {
		err = fmt.Errorf("capture: the stream ended early: %d octets of a block were left", len(f.block))
	}
	return err
}
