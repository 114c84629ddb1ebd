package mpa

import "strconv"

// ErrorCode is a code of RFC 5044 section 8 or RFC 6581 section 8; a Terminate carries it as layer
// 2, type 0 (RFC 6580 section 3.3).
type ErrorCode uint8

const (
	ErrConnection ErrorCode = 1 // TCP closed, terminated or lost
	ErrCRC        ErrorCode = 2 // CRC of an FPDU does not match
	ErrMarker     ErrorCode = 3 // marker and ULPDU_Length disagree on where an FPDU starts
	ErrStartup    ErrorCode = 4 // invalid Request or Reply frame

	ErrLocalCatastrophic ErrorCode = 5 // any other error of establishment
	ErrInsufficientIRD   ErrorCode = 6
	ErrNoMatchingRTR     ErrorCode = 7
)

// What a Receiver reports. Constant, so that an error costs no formatting on the packet's way.
const (
	whatCRC      = "CRC does not match"
	whatMarker   = "marker does not point at the FPDU that contains it"
	whatBoundary = "FPDU does not end where a marker located the next one"
	whatLength   = "ULPDU_Length above 64768"
)

// Error is an MPA error as the ULP sees it: always the peer's fault or the connection's, never
// ours.
type Error struct {
	Code ErrorCode
	// octet of MPA's half-connection where the FPDU in question begins; in a start-up frame, octet
	// of the frame
	Offset uint64
	What   string // constant text
}

func (e *Error) Error() string {
	return "mpa: " + e.What + " (code " + strconv.Itoa(int(e.Code)) + ", offset " + strconv.FormatUint(
		e.Offset, 10) + ")"
}

// Is makes errors.Is compare Code and What, so that the start-up errors below match wherever they
// were found.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.What == e.What
}
