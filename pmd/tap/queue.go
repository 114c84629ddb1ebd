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
	frameMax int
	counters pmd.Counters
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
		d.Len = uint32(q.frameMax + 1)
		got, errno := readFrame(q.fd, q.pool.Data(b))
		if errno != 0 {
			q.pool.Free(b)
			// EINTR: a signal found us between frames; the next poll goes on.
			if errno != unix.EAGAIN && errno != unix.EINTR {
				q.counters.RxErrors++
			}
			break
		}
		if got > q.frameMax || got < pmd.EthernetLen {
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
	if n > q.frameMax {
		q.counters.RxTooLong++
	} else {
		q.counters.RxErrors++
	}
}

// Tx writes frames into the kernel, which has them when it returns: no Buf is held. A frame that asks for an
// offload is the caller's bug: panic.
func (q *Queue) Tx(bufs []mem.Buf) int {
	for n, b := range bufs {
		if q.pool.Desc(b).Flags&(mem.TxChecksum|mem.TxSegment) != 0 {
			panic("tap: frame asks for an offload that the port's Caps do not claim")
		}
		frame := q.pool.Data(b)
		if len(frame) < pmd.EthernetLen || len(frame) > q.frameMax {
			q.counters.TxErrors++
			continue
		}
		switch errno := writeFrame(q.fd, frame); errno {
		case 0:
			q.counters.TxFrames++
			q.counters.TxOctets += uint64(len(frame))
		case unix.EAGAIN, unix.EINTR, unix.ENOBUFS, unix.ENOMEM:
			q.counters.TxFull += uint64(len(bufs) - n)
			return n
		default: // EIO: the device is down
			q.counters.TxErrors++
		}
	}
	return len(bufs)
}

// readFrame and writeFrame are raw: a system call through the scheduler would tell it twice per frame that this
// thread may block, which on a non-blocking descriptor it cannot.
func readFrame(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

func writeFrame(fd int, b []byte) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return errno
}
