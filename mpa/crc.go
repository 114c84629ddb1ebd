package mpa

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/internal/crc32c"
)

// The CRC of an FPDU is CRC32C in the manner of the iSCSI digests (RFC 5044 section 4.4): it covers
// every stream octet of the FPDU in front of the CRC field, a leading marker, inner markers and one
// between PAD and CRC included (DECISIONS 17), and stands on the wire with its least significant
// octet first.

// crcAdd extends crc, which covers some octets, by the octets p that follow them. The start value
// is 0.
func crcAdd(crc uint32, p []byte) uint32 { return crc32c.Update(crc, p) }

// crcGood says whether the last four octets of a whole FPDU are the CRC of all octets before them.
func crcGood(fpdu []byte) bool {
	n := len(fpdu) - CRCLen
	return crcAdd(0, fpdu[:n]) == binary.LittleEndian.Uint32(fpdu[n:])
}

// crcPut writes the CRC of all octets before the last four into the last four.
func crcPut(fpdu []byte) {
	n := len(fpdu) - CRCLen
	binary.LittleEndian.PutUint32(fpdu[n:], crcAdd(0, fpdu[:n]))
}
