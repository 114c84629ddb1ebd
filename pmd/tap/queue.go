package tap

import (
	"unsafe"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"golang.org/x/sys/unix"
)

// Queue moves frames through one descriptor of the device. All of its methods belong to one goroutine.
type Queue struct {
	fd       int
	pool     *mem.Pool
	rxMax    int // longest frame that is no error
	txMax    int // without TxSegment
	vnet     bool
	counters pmd.Counters

	hdr [vnetLen]byte // vnet: of the frame being sent
	iov [2]unix.Iovec
}

func (q *Queue) Counters() pmd.Counters { return q.counters }

// Rx reads waiting frames. With an empty pool they go on waiting in the kernel, which drops and counts
// (tx_dropped of the device) once its queue is full.
func (q *Queue) Rx(bufs []mem.Buf) int {
	n := 0
	for range bufs {
		b := q.pool.Alloc()
		if b == mem.NoBuf {
			q.counters.RxNoBuf++
			break
		}
		d := q.pool.Desc(b)
		got, errno := q.read(b, d)
		if errno != 0 {
			q.pool.Free(b)
			// EINTR: a signal found us between frames; the next poll goes on.
			if errno != unix.EAGAIN && errno != unix.EINTR {
				q.counters.RxErrors++
			}
			break
		}
		if got > q.rxMax || got < pmd.EthernetLen {
			q.pool.Free(b)
			q.refuse(got)
			continue
		}
		d.Len = uint32(got)
		q.counters.RxOctets += uint64(got)
		bufs[n] = b
		n++
	}
	q.counters.RxFrames += uint64(n)
	return n
}

// refuse counts a frame of n octets that is no frame of this device: longer than its MTU allows, as when
// somebody raised the kernel side's, or no whole Ethernet header.
func (q *Queue) refuse(n int) {
	if n > q.rxMax {
		q.counters.RxTooLong++
	} else {
		q.counters.RxErrors++
	}
}

// read gets one frame, and with vnet what its header says of it, into a fresh Buf. A frame longer than rxMax comes
// out as rxMax+1 octets.
func (q *Queue) read(b mem.Buf, d *mem.Desc) (int, unix.Errno) {
	d.Len = uint32(q.rxMax + 1)
	if !q.vnet {
		return readFrame(q.fd, q.pool.Data(b))
	}
	// The header goes into the headroom, so that the frame begins where it always does.
	d.Off -= vnetLen
	d.Len += vnetLen
	whole := q.pool.Data(b)
	d.Off += vnetLen
	got, errno := readFrame(q.fd, whole)
	if errno == 0 && got >= vnetLen {
		describe(d, (*[vnetLen]byte)(whole))
	}
	return got - vnetLen, errno
}

// Tx writes frames into the kernel, which has them when it returns: no Buf is held. A frame that asks for an
// offload that the Caps do not claim is the caller's bug, and so is TxSegment without TxChecksum: panic.
func (q *Queue) Tx(bufs []mem.Buf) int {
	for n, b := range bufs {
		d := q.pool.Desc(b)
		asked := d.Flags & (mem.TxChecksum | mem.TxSegment)
		if asked != 0 && !q.vnet || asked == mem.TxSegment {
			panic("tap: frame asks for an offload that the port's Caps do not claim")
		}
		frame := q.pool.Data(b)
		if len(frame) < pmd.EthernetLen || len(frame) > q.txMax && (asked&mem.TxSegment == 0 || len(frame) > segmentedMax) {
			q.counters.TxErrors++
			continue
		}
		switch errno := q.write(frame, d); errno {
		case 0:
			q.counters.TxFrames++
			q.counters.TxOctets += uint64(len(frame))
		case unix.EAGAIN, unix.EINTR, unix.ENOBUFS, unix.ENOMEM:
			q.counters.TxFull += uint64(len(bufs) - n)
			return n
		default: // EIO: the device is down; EINVAL: a vnet header that does not fit its frame
			q.counters.TxErrors++
		}
	}
	return len(bufs)
}

func (q *Queue) write(frame []byte, d *mem.Desc) unix.Errno {
	if !q.vnet {
		return writeFrame(q.fd, frame)
	}
	request(&q.hdr, frame, d)
	// Two pieces, for the octets before a frame are not ours to write: they may be the owner's.
	q.iov[0].Base, q.iov[1].Base = &q.hdr[0], &frame[0]
	q.iov[0].SetLen(vnetLen)
	q.iov[1].SetLen(len(frame))
	return writePieces(q.fd, &q.iov)
}

// readFrame, writeFrame and writePieces are raw: a system call through the scheduler would tell it twice per frame that this
// thread may block, which on a non-blocking descriptor it cannot.
func readFrame(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

func writeFrame(fd int, b []byte) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return errno
}

func writePieces(fd int, iov *[2]unix.Iovec) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(iov)), uintptr(len(iov)))
	return errno
}
