package image

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// kernel unpacks the kernel: qemu starts an ELF file by its PVH entry, and nothing is decompressed
// under emulation.
func (b *builder) kernel(ctx context.Context) error {
	packed, err := os.ReadFile(b.dir("kernel", "boot", "vmlinuz-"+b.rel.name))
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	payload, err := kernelPayload(packed)
	if err != nil {
		return err
	}
	elfFile, err := unxz(ctx, payload)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.out(), kernelFile), elfFile, 0o644)
}

// Offsets in a bzImage: the kernel's Documentation/x86/boot.rst.
const (
	setupSectsAt    = 0x1f1
	headerMagicAt   = 0x202
	payloadOffsetAt = 0x248
	payloadLengthAt = 0x24c
	sector          = 512
)

var errNoBzImage = errors.New("image: the kernel is no bzImage whose compressed part can be found")

// kernelPayload is the compressed kernel in a bzImage.
func kernelPayload(b []byte) ([]byte, error) {
	if len(b) < payloadLengthAt+4 || !bytes.Equal(b[headerMagicAt:][:4], []byte("HdrS")) {
		return nil, errNoBzImage
	}
	sects := int(b[setupSectsAt])
	if sects == 0 {
		sects = 4
	}
	from := (sects+1)*sector + int(binary.LittleEndian.Uint32(b[payloadOffsetAt:]))
	n := int(binary.LittleEndian.Uint32(b[payloadLengthAt:]))
	if from > len(b) || n > len(b)-from || n < 6 ||
		!bytes.Equal(b[from:][:6], []byte("\xfd7zXZ\x00")) {
		return nil, errNoBzImage
	}
	return b[from:][:n], nil
}

// unxz decompresses; what follows the compressed octets is left aside.
func unxz(ctx context.Context, b []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "xz", "-dc", "--single-stream")
	cmd.Stdin = bytes.NewReader(b)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("image: xz -dc: %w: %s", err, errs.String())
	}
	return out, nil
}

// loaded are the modules that the guest loads, those that they depend on left out. crc32c is asked
// for by name only, at run time. The last three are tc's.
var loaded = strings.Fields(
	"crc32c_generic crc32c-intel virtio_pci virtio_net rdma_ucm sch_ingress cls_u32 act_gact")

// needed by siw itself.
var siwNeeds = strings.Fields("libcrc32c ib_core iw_cm ib_uverbs")

// modules compiles siw and collects the modules in the order in which they are loaded.
func (b *builder) modules(ctx context.Context, root *tree) error {
	for _, v := range []struct {
		name    string
		patched bool
	}{{"siw", false}, {"siw-opt", true}} {
		ko, err := b.compileSiw(ctx, v.name, v.patched)
		if err != nil {
			return err
		}
		root.file("mod/"+v.name+".ko", ko, 0o644)
	}
	found, err := b.findModules()
	if err != nil {
		return err
	}
	var order []string
	done := map[string]bool{}
	var load func(name string) error
	load = func(name string) error {
		name = strings.ReplaceAll(name, "-", "_")
		if done[name] {
			return nil
		}
		done[name] = true
		path, ok := found[name]
		if !ok {
			return nil // built in
		}
		ko, err := readModule(ctx, path)
		if err != nil {
			return err
		}
		deps, err := moduleDepends(ko)
		if err != nil {
			return fmt.Errorf("image: %s: %w", path, err)
		}
		for _, d := range deps {
			if err := load(d); err != nil {
				return err
			}
		}
		root.file("mod/"+name+".ko", ko, 0o644)
		order = append(order, name)
		return nil
	}
	for _, name := range append(append([]string{}, loaded...), siwNeeds...) {
		if err := load(name); err != nil {
			return err
		}
	}
	root.file("mod/order", []byte(strings.Join(order, "\n")+"\n"), 0o644)
	return nil
}

// findModules are the kernel's modules by name.
func (b *builder) findModules() (map[string]string, error) {
	found := map[string]string{}
	err := filepath.WalkDir(b.dir("kernel", "lib", "modules", b.rel.name),
		func(path string, e os.DirEntry, err error) error {
			if name, _, isModule := strings.Cut(filepath.Base(path), ".ko"); isModule && err == nil &&
				!e.IsDir() {
				found[strings.ReplaceAll(name, "-", "_")] = path
			}
			return err
		})
	if err == nil && found["rdma_ucm"] == "" {
		err = errors.New("no rdma_ucm in the kernel's package")
	}
	if err != nil {
		return nil, fmt.Errorf("image: modules: %w", err)
	}
	return found, nil
}

func readModule(ctx context.Context, path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil && strings.HasSuffix(path, ".xz") {
		b, err = unxz(ctx, b)
	}
	return b, err
}

// moduleDepends reads the names of modules that must be loaded before one.
func moduleDepends(ko []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, errors.New("a module without .modinfo")
	}
	info, err := s.Data()
	if err != nil {
		return nil, err
	}
	for line := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(line, "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}

// compileSiw builds the module. Patched, its switches are parameters.
func (b *builder) compileSiw(ctx context.Context, name string, patched bool) ([]byte, error) {
	src := b.dir(name)
	if err := os.CopyFS(src, os.DirFS(b.dir("source"))); err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	if patched {
		if err := parametrize(src); err != nil {
			return nil, err
		}
	}
	headers := b.dir("headers", "usr", "src", "linux-headers-"+b.rel.name)
	if err := edit(filepath.Join(headers, "Makefile"), func(text string) string {
		// where Debian would install it
		return strings.ReplaceAll(text, " /usr/src/", " "+b.dir("headers", "usr", "src")+"/")
	}); err != nil {
		return nil, err
	}
	if _, err := run(ctx, "", "make", "-s", "-j2", "-C", headers, "M="+src, "CONFIG_RDMA_SIW=m",
		"modules"); err != nil {
		return nil, err
	}
	ko := filepath.Join(src, "siw.ko")
	if _, err := run(ctx, "", "strip", "-g", ko); err != nil {
		return nil, err
	}
	return os.ReadFile(ko)
}

// Siw's switches, and how many there are in siw_main.c at least.
var (
	switchRE    = regexp.MustCompile(`(?m)^const bool (\w+)( = true)?;$`)
	revRE       = regexp.MustCompile(`(?m)^u_char mpa_version = .*;$`)
	switchesMin = 5
)

// parametrize makes module parameters of siw's switches, and changes nothing else.
func parametrize(src string) error {
	var names []string
	err := edit(filepath.Join(src, "siw_main.c"), func(text string) string {
		for _, m := range switchRE.FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		text = switchRE.ReplaceAllString(text, "bool $1$2;\nmodule_param($1, bool, 0444);")
		return revRE.ReplaceAllString(text, "$0\nmodule_param(mpa_version, byte, 0444);")
	})
	if err != nil {
		return err
	}
	if len(names) < switchesMin {
		return fmt.Errorf("image: siw_main.c has %s switches that are known here, %d expected: "+
			"parametrize must be looked at",
			strconv.Itoa(len(names)), switchesMin)
	}
	return edit(filepath.Join(src, "siw.h"), func(text string) string {
		for _, n := range names {
			text = strings.ReplaceAll(text, "extern const bool "+n+";", "extern bool "+n+";")
		}
		return text
	})
}

// edit replaces a file's text.
func edit(path string, change func(string) string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return os.WriteFile(path, []byte(change(string(text))), 0o644)
}
