package image

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// tree is what goes into an initramfs: files by path, without a leading slash.
type tree struct {
	files map[string]treeFile
}

type treeFile struct {
	data []byte
	mode fs.FileMode // with fs.ModeDir for a directory
}

func (t *tree) file(name string, data []byte, mode fs.FileMode) {
	if t.files == nil {
		t.files = map[string]treeFile{}
	}
	for d := path.Dir(name); d != "."; d = path.Dir(d) {
		t.files[d] = treeFile{mode: fs.ModeDir | 0o755}
	}
	t.files[name] = treeFile{data, mode}
}

func (t *tree) dir(name string) {
	t.file(name+"/x", nil, 0)
	delete(t.files, name+"/x")
}

// write makes a cpio archive of the tree, in the format that the kernel takes ("newc",
// Documentation/driver-api/early-userspace).
func (t *tree) write(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	w := bufio.NewWriter(f)
	t.cpio(w)
	return errors.Join(w.Flush(), f.Close())
}

// Modes of cpio(5).
const (
	cpioDir     = 0o040000
	cpioRegular = 0o100000
)

func (t *tree) cpio(w io.Writer) {
	entry := func(ino int, name string, mode uint32, data []byte) {
		pad := func(n int) []byte { return make([]byte, -n&3) }
		head := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", ino, mode, 0, 0,
			1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
		name += "\x00"
		_, _ = io.WriteString(w, head+name) // w keeps the error
		_, _ = w.Write(pad(len(head) + len(name)))
		_, _ = w.Write(data)
		_, _ = w.Write(pad(len(data)))
	}
	ino := 0
	for _, name := range slices.Sorted(maps.Keys(t.files)) { // a directory before what is in it
		f := t.files[name]
		mode := uint32(f.mode.Perm()) | cpioRegular
		if f.mode.IsDir() {
			mode = uint32(f.mode.Perm()) | cpioDir
		}
		ino++
		entry(ino, name, mode, f.data)
	}
	entry(0, "TRAILER!!!", 0, nil)
}

// userland puts in what the guest runs: busybox, the programs with their libraries, our own files.
func (b *builder) userland(ctx context.Context, root *tree) error {
	for _, d := range []string{"proc", "sys", "dev", "tmp", "run", "sbin", "usr/bin"} {
		root.dir(d)
	}
	l := &libraries{user: b.dir("user"), root: root, done: map[string]bool{}}
	if err := l.program("busybox", "bin/busybox"); err != nil {
		return err
	}
	for _, p := range programs {
		if err := l.program(p, "usr/bin/"+p); err != nil {
			return err
		}
	}
	// Loaded at run time: libibverbs' driver for siw, and what ending a thread needs.
	const driver = "usr/lib/x86_64-linux-gnu/libibverbs/libsiw-rdmav34.so"
	if err := l.put(filepath.Join(b.dir("user"), driver), driver); err != nil {
		return err
	}
	if err := l.library("libgcc_s.so.1"); err != nil {
		return err
	}
	root.file("etc/libibverbs.d/siw.driver", []byte("driver siw\n"), 0o644)
	root.file("etc/passwd", []byte("root:x:0:0:root:/:/bin/sh\n"), 0o644)
	root.file("etc/hosts", []byte("127.0.0.1 localhost\n"), 0o644)
	for _, name := range []string{"init", "agent"} {
		text, err := guestFiles.ReadFile("guest/" + name)
		if err != nil {
			return err
		}
		root.file(name, text, 0o755)
	}
	return b.compileProbe(ctx, l)
}

// compileProbe builds the guest's own program against the libraries that the guest has.
func (b *builder) compileProbe(ctx context.Context, l *libraries) error {
	text, err := guestFiles.ReadFile("guest/probe.c")
	if err != nil {
		return err
	}
	source, to := b.dir("probe.c"), b.dir("probe")
	if err := os.WriteFile(source, text, 0o644); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	libs := b.dir("user", "usr", "lib", "x86_64-linux-gnu")
	if _, err := run(ctx, "", "gcc", "-O1", "-Wall", "-Werror", "-I", b.dir("user", "usr", "include"),
		"-o", to, source, "-L", libs,
		"-Wl,-rpath-link,"+libs, "-lrdmacm", "-libverbs"); err != nil {
		return err
	}
	return l.put(to, "usr/bin/probe")
}

// libraries puts programs into a tree with the shared libraries that they name.
type libraries struct {
	user string // unpacked packages
	root *tree
	done map[string]bool
}

func (l *libraries) program(name, to string) error {
	return l.find(name, to, "bin", "sbin", "usr/bin", "usr/sbin")
}

// library puts a shared library where the loader looks.
func (l *libraries) library(name string) error {
	if l.done[name] {
		return nil
	}
	l.done[name] = true
	return l.find(name, "lib/"+name, "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib64",
		"usr/lib", "lib")
}

func (l *libraries) find(name, to string, dirs ...string) error {
	for _, d := range dirs {
		from := filepath.Join(l.user, d, name)
		if _, err := os.Stat(from); err == nil {
			return l.put(from, to)
		}
	}
	return fmt.Errorf("image: %s is in none of the packages: %v", name, packages)
}

func (l *libraries) put(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	l.root.file(to, data, 0o755)
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("image: %s: %w", from, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP { // the loader is named with its path
			loader := make([]byte, p.Filesz)
			if _, err := p.ReadAt(loader, 0); err != nil {
				return fmt.Errorf("image: %s: %w", from, err)
			}
			name := string(bytes.Trim(loader, "\x00"))
			if err := l.find(path.Base(name), name[1:], "lib64", "lib/x86_64-linux-gnu"); err != nil {
				return err
			}
		}
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("image: %s: %w", from, err)
	}
	for _, n := range needed {
		if path.Base(n) == "ld-linux-x86-64.so.2" {
			continue // put as the interpreter
		}
		if err := l.library(n); err != nil {
			return err
		}
	}
	return nil
}
