// Package iperf3 speaks the protocol of iperf3 (esnet/iperf, src/iperf_api.h; checked against 3.12)
// over any net.Conn, as server and as client, so that the stock program measures our TCP. TCP only.
// One test is one control connection and a bounded number of data connections, all to the same
// port; a cookie tells which client opened them:
//
//	client                              server
//	cookie            ->                            control connection
//	                  <- PARAM_EXCHANGE
//	JSON parameters   ->
//	                  <- CREATE_STREAMS             or SERVER_ERROR and two codes
//	cookie            ->                            on each data connection
//	                  <- TEST_START, TEST_RUNNING
//	octets           <-> octets                     data connections
//	TEST_END          ->
//	                  <- EXCHANGE_RESULTS
//	JSON results      ->
//	                  <- JSON results
//	                  <- DISPLAY_RESULTS
//	IPERF_DONE        ->
//
// Octets are counted to the last one: a receiver goes on reading after TEST_END until it has what
// the sender says it sent (iperf3 itself leaves the rest in the socket), so that both ends report
// the same number unless -O is used.
//
// Bounds: StreamsMax data connections in a direction, LengthMax octets a block, jsonMax octets a
// message, one test at a time, and a timeout on every wait.
package iperf3

import "strconv"

// State is the one octet that either side sends on the control connection to move the test on.
type State int8

// The states that are sent. iperf3 numbers more, which it keeps to itself.
const (
	TestStart       State = 1
	TestRunning     State = 2
	TestEnd         State = 4
	ParamExchange   State = 9
	CreateStreams   State = 10
	ServerTerminate State = 11
	ClientTerminate State = 12
	ExchangeResults State = 13
	DisplayResults  State = 14
	Done            State = 16
	AccessDenied    State = -1
	ServerError     State = -2
)

// String is the name in iperf_api.h.
func (s State) String() string {
	switch s {
	case TestStart:
		return "TEST_START"
	case TestRunning:
		return "TEST_RUNNING"
	case TestEnd:
		return "TEST_END"
	case ParamExchange:
		return "PARAM_EXCHANGE"
	case CreateStreams:
		return "CREATE_STREAMS"
	case ServerTerminate:
		return "SERVER_TERMINATE"
	case ClientTerminate:
		return "CLIENT_TERMINATE"
	case ExchangeResults:
		return "EXCHANGE_RESULTS"
	case DisplayResults:
		return "DISPLAY_RESULTS"
	case Done:
		return "IPERF_DONE"
	case AccessDenied:
		return "ACCESS_DENIED"
	case ServerError:
		return "SERVER_ERROR"
	}
	return "state " + strconv.Itoa(int(s))
}
