package image

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An archive of a directory and a file in it, octet for octet.
func TestCpio(t *testing.T) {
	var tr tree
	tr.file("a/b", []byte("hello"), 0o755)
	var out bytes.Buffer
	tr.cpio(&out)
	const (
		dir = "070701" + "00000001" + "000041ED" + "00000000" + "00000000" + "00000001" +
			"00000000" + "00000000"
		file = "070701" + "00000002" + "000081ED" + "00000000" + "00000000" + "00000001" +
			"00000000" + "00000005"
		end = "070701" + "00000000" + "00000000" + "00000000" + "00000000" + "00000001" +
			"00000000" + "00000000"
		zeros = "00000000" + "00000000" + "00000000" + "00000000"
	)
	want := dir + zeros + "00000002" + "00000000" + "a\x00" +
		file + zeros + "00000004" + "00000000" + "a/b\x00\x00\x00" + "hello\x00\x00\x00" +
		end + zeros + "0000000B" + "00000000" + "TRAILER!!!\x00\x00\x00\x00"
	require.Equal(t, want, out.String())
}

// The compressed kernel is where the header says, whatever comes after it; anything else is an
// error.
func TestKernelPayload(t *testing.T) {
	payload := []byte("\xfd7zXZ\x00 and so on")
	image := func() []byte {
		b := make([]byte, 3*sector)
		b[setupSectsAt] = 1
		copy(b[headerMagicAt:], "HdrS")
		binary.LittleEndian.PutUint32(b[payloadOffsetAt:], 16)
		binary.LittleEndian.PutUint32(b[payloadLengthAt:], uint32(len(payload)))
		copy(b[2*sector+16:], payload)
		return b
	}
	got, err := kernelPayload(image())
	require.NoError(t, err)
	require.Equal(t, payload, got)
	for name, spoil := range map[string]func(b []byte) []byte{
		"short":    func(b []byte) []byte { return b[:payloadLengthAt] },
		"no magic": func(b []byte) []byte { b[headerMagicAt]++; return b },
		"not xz":   func(b []byte) []byte { b[2*sector+16]++; return b },
		"outside":  func(b []byte) []byte { b[payloadOffsetAt+2] = 1; return b },
		"too long": func(b []byte) []byte { b[payloadLengthAt+2] = 1; return b },
		"length 2^32-1": func(b []byte) []byte {
			copy(b[payloadLengthAt:], "\xff\xff\xff\xff")
			return b
		},
	} {
		_, err := kernelPayload(spoil(image()))
		require.ErrorIs(t, err, errNoBzImage, name)
	}
}

// The switches become parameters, and nothing else changes. A siw that looks different is noticed.
func TestParametrize(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(b)
	}
	names := []string{"zcopy_tx", "try_gso", "loopback_enabled", "mpa_crc_required", "peer_to_peer"}
	main, head := "const bool zcopy_tx = true;\nconst int other;\nu_char mpa_version = "+
		"MPA_REVISION_2;\n", "extern const int other;\n"
	for _, n := range names[1:] {
		main += "const bool " + n + ";\n"
	}
	for _, n := range names {
		head += "extern const bool " + n + ";\n"
	}
	write("siw_main.c", main)
	write("siw.h", head)
	require.NoError(t, parametrize(dir))
	got := read("siw_main.c")
	require.Contains(t, got, "\nconst int other;\n")
	require.Contains(t, got, "bool zcopy_tx = true;\nmodule_param(zcopy_tx, bool, 0444);\n")
	require.Contains(t, got, "\nbool peer_to_peer;\nmodule_param(peer_to_peer, bool, 0444);\n")
	require.Contains(t, got, "u_char mpa_version = MPA_REVISION_2;\nmodule_param(mpa_version, "+
		"byte, 0444);\n")
	require.Equal(t, strings.ReplaceAll(head, "extern const bool", "extern bool"), read("siw.h"))
	write("siw_main.c", "const bool zcopy_tx = true;\n")
	require.ErrorContains(t, parametrize(dir), "parametrize must be looked at")
}

// An image is another one when a package, the kernel or a file of the guest's is.
func TestNameOf(t *testing.T) {
	name := func(rel string, debs ...deb) string {
		n, err := nameOf(release{rel}, debs)
		require.NoError(t, err)
		return n
	}
	one := name("6.1.0-1-amd64", deb{"a", "1"})
	require.Equal(t, one, name("6.1.0-1-amd64", deb{"a", "1"}))
	require.NotEqual(t, one, name("6.1.0-2-amd64", deb{"a", "1"}))
	require.NotEqual(t, one, name("6.1.0-1-amd64", deb{"a", "2"}))
	require.Equal(t, []string{"linux-image-6.1.0-1-amd64", "linux-headers-6.1.0-1-amd64",
		"linux-headers-6.1.0-1-common", "linux-kbuild-6.1", "linux-source-6.1"},
		release{"6.1.0-1-amd64"}.packages())
}

// What apt-cache policy prints.
func TestParsePolicy(t *testing.T) {
	const text = "busybox-static:\n  Installed: (none)\n  Candidate: 1:1.35.0-4+b7\n  Version " +
		"table:\n     1:1.35.0-4+b7 500\n" +
		"libc6:\n  Installed: 2.36-9\n  Candidate: 2.36-10\n  Version table:\nnone-such:\n  Installed: " +
		"(none)\n  Candidate: (none)\n"
	debs, err := parsePolicy([]byte(text), []string{"libc6", "busybox-static"})
	require.NoError(t, err)
	require.Equal(t, []deb{{"libc6", "2.36-10"}, {"busybox-static", "1:1.35.0-4+b7"}}, debs)
	for _, n := range []string{"none-such", "unheard-of"} {
		_, err := parsePolicy([]byte(text), []string{n})
		require.ErrorContains(t, err, "apt has no package "+n)
	}
}

// What is missing on the host is named, with the package that has it.
func TestMissingTools(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	require.EqualError(t, checkTools(),
		"image: the siw guest needs qemu-system-x86_64: apt-get install qemu-system-x86, or "+
			"scripts/deps.sh interop")
}
