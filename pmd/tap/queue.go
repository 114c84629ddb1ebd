package tap

import (
	"unsafe"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"golang.org/x/sys/unix"
)

// queue moves frames through one descriptor of the device. All of its methods belong to one
// goroutine.
type queue struct {
	fd       int
	pool     *mem.Pool
	rxMax    int // longest frame that is no error
	txMax    int // without TxSegment
	vnet     bool
	counters pmd.Counters

	// With vnet:
	scatter scatter
	cut     cut
	gather  gather
}

func (q *queue) Counters() pmd.Counters { return q.counters }

// Interrupt implements pmd.Interrupter: a queue's descriptor is readable while frames wait.
func (q *queue) Interrupt() (fd int, ok bool) { return q.fd, true }

// Arm implements pmd.Interrupter. There is nothing to switch.
func (q *queue) Arm(bool) {}

// Rx reads waiting frames. With an empty pool they go on waiting in the kernel, which drops and
// counts (tx_dropped of the device) once its queue is full.
//
// With offload the rest of a large frame may be held over to the next Rx. It comes first there, and
// there is one only when this Rx filled bufs or the pool was empty: a caller that goes on while
// bursts come full, as a Poller does, leaves no frames. So pmd.Deadline does not speak of
// them.
func (q *queue) Rx(bufs []mem.Buf) int {
	if q.vnet {
		return q.receive(bufs)
	}
	n := 0
	for range bufs {
		b := q.pool.Alloc()
		if b == mem.NoBuf {
			q.counters.RxNoBuf++
			break
		}
		d := q.pool.Desc(b)
		d.Len = uint32(q.rxMax + 1) // a longer frame comes out so long
		got, errno := readFrame(q.fd, q.pool.Data(b))
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

// refuse counts a frame of n octets that is no frame of this device: longer than its MTU allows, as
// when somebody raised the kernel side's, or no whole Ethernet header.
func (q *queue) refuse(n int) {
	if n > q.rxMax {
		q.counters.RxTooLong++
	} else {
		q.counters.RxErrors++
	}
}

// Tx writes frames into the kernel, which has them when it returns: no Buf is held. With offload,
// consecutive segments of a TCP flow leave in one system call, see gather. A frame that asks for an
// offload that the Caps do not claim is the caller's bug, and so is TxSegment without TxChecksum:
// panic.
func (q *queue) Tx(bufs []mem.Buf) int {
	for n := 0; n < len(bufs); {
		d := q.pool.Desc(bufs[n])
		asked := d.Flags & (mem.TxChecksum | mem.TxSegment)
		if asked != 0 && !q.vnet || asked == mem.TxSegment {
			panic("tap: frame asks for an offload that the port's Caps do not claim")
		}
		frame := q.pool.Data(bufs[n])
		if len(frame) < pmd.EthernetLen || len(frame) > q.txMax &&
			(asked&mem.TxSegment == 0 || len(frame) > segmentedMax) {
			q.counters.TxErrors++
			n++
			continue
		}
		frames, errno := q.write(bufs[n:], frame)
		switch errno {
		case 0:
			q.counters.TxFrames += uint64(frames)
			for _, b := range bufs[n : n+frames] {
				q.counters.TxOctets += uint64(q.pool.Desc(b).Len)
			}
		case unix.EAGAIN, unix.EINTR, unix.ENOBUFS, unix.ENOMEM:
			q.counters.TxFull += uint64(len(bufs) - n)
			return n
		default: // EIO: the device is down; EINVAL: a vnet header that does not fit its frame
			q.counters.TxErrors += uint64(frames)
		}
		n += frames
	}
	return len(bufs)
}

// write sends frame, the first of bufs, and with it those that can be coalesced with it; it returns
// how many.
func (q *queue) write(bufs []mem.Buf, frame []byte) (int, unix.Errno) {
	if !q.vnet {
		return 1, writeFrame(q.fd, frame)
	}
	g := &q.gather
	g.coalesce(q.pool, bufs, q.txMax)
	_, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(q.fd), uintptr(unsafe.Pointer(&g.iov)),
		uintptr(g.pieces))
	return g.frames, errno
}

// readFrame and writeFrame are raw, as all our system calls per frame: one through the scheduler
// would tell it twice that this thread may block, which on a non-blocking descriptor it cannot.
func readFrame(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

func writeFrame(fd int, b []byte) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return errno
}
