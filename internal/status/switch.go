package status

import "time"

// Kinds of process that answer GET /v1/status.
const (
	KindDaemon  = "daemon"
	KindSwitch  = "switch"
	KindProgram = "program"
)

// Switch is the answer of rnicd switch to GET /v1/status.
type Switch struct {
	Kind    string    `json:"kind"` // KindSwitch
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Config  string    `json:"config,omitempty"` // the file
	Started time.Time `json:"started"`
	At      time.Time `json:"at"`     // when this was so
	Loaded  time.Time `json:"loaded"` // when the configuration in force was read
	Healthy bool      `json:"healthy"`
	LogLost uint64    `json:"log_lost"`        // lines of the log that its reader did not take
	Error   string    `json:"error,omitempty"` // a thread does not turn: there are no counters
	CPU     CPU       `json:"cpu"`
	// why the last reload failed, or changed only a part, until one succeeds
	ReloadError string             `json:"reload_error,omitempty"`
	Refused     uint64             `json:"refused"` // clients that may not attach, or cannot
	Threads     List[SwitchThread] `json:"threads"`
	Uplinks     List[SwitchPort]   `json:"uplinks"` // one for each queue
	Programs    List[SwitchPort]   `json:"programs"`
}

// SwitchThread is a thread that switches.
type SwitchThread struct {
	Thread    int    `json:"thread"`
	Core      int    `json:"core"` // -1: not pinned
	Turns     uint64 `json:"turns"`
	BusyTurns uint64 `json:"busy_turns"` // of them, those with frames
	Frames    uint64 `json:"frames"`     // steered
	// of where frames go; frames of a flow that follow each other need one
	Lookups  uint64            `json:"lookups"`
	Copies   uint64            `json:"copies"`  // of frames to groups
	Answers  uint64            `json:"answers"` // to questions for shared addresses
	BufsFree int               `json:"buffers_free"`
	Bufs     int               `json:"buffers"`
	Drops    map[string]uint64 `json:"drops,omitempty"` // those that are not 0 and of no port
}

// SwitchPort is a queue of an uplink, or a program.
type SwitchPort struct {
	Name      string         `json:"name"`
	Queue     int            `json:"queue"`            // of an uplink
	Thread    int            `json:"thread"`           // that switches for it
	Driver    string         `json:"driver,omitempty"` // of an uplink
	Program   *SwitchProgram `json:"program,omitempty"`
	Attached  bool           `json:"attached"`              // an uplink always is
	Attaches  uint64         `json:"attachments,omitempty"` // of a program so far
	Received  uint64         `json:"received_frames"`
	ReceivedB uint64         `json:"received_octets"` // from it, dropped ones among them
	Sent      uint64         `json:"sent_frames"`
	SentB     uint64         `json:"sent_octets"`
	Waiting   int            `json:"waiting_frames"`
	WaitMax   int            `json:"waiting_frames_max"`
	// in which its frames had to wait, for send_rate, send_frames or a full uplink
	Throttled uint64 `json:"throttled_turns"`
	// Those that are not 0, by reason: of steering; of the rings that a program has in its memory;
	// of an uplink's device.
	Drops  map[string]uint64 `json:"drops,omitempty"`
	Rings  map[string]uint64 `json:"ring_errors,omitempty"`
	Device map[string]uint64 `json:"device_drops,omitempty"`
	// Of an uplink's device, the same for all queues: what is wrong with it, and how many
	// connections of it ended because memory of a memif peer went away, or was slow.
	Trouble  *Trouble `json:"trouble,omitempty"`
	Offences uint64   `json:"peer_offences,omitempty"`
}

// SwitchProgram is what only programs have.
type SwitchProgram struct {
	Socket    string       `json:"socket"`
	ID        uint32       `json:"id"`
	Uplink    string       `json:"uplink,omitempty"`
	Addresses List[string] `json:"addresses"`
	Ports     []string     `json:"ports,omitempty"`
	MAC       string       `json:"mac"`
	VLAN      uint16       `json:"vlan,omitempty"`
	// The process that is attached, or was; none yet: 0.
	PID    int32  `json:"pid,omitempty"`
	UID    uint32 `json:"uid"`
	GID    uint32 `json:"gid"`
	Client string `json:"client,omitempty"` // as it calls itself
	Error  string `json:"error,omitempty"`  // why it is no longer attached
	// Limits a second; 0: none.
	SendRate      int64 `json:"send_rate,omitempty"`
	SendFrames    int64 `json:"send_frames,omitempty"`
	ReceiveRate   int64 `json:"receive_rate,omitempty"`
	ReceiveFrames int64 `json:"receive_frames,omitempty"`
}

// RingErrors are the keys of SwitchPort.Rings.
var RingErrors = []string{"descriptor", "index", "length", "fault", "slow"}

// DeviceDrops are the keys of SwitchPort.Device.
var DeviceDrops = []string{"rx no buf", "rx too long", "rx errors", "rx other vlan", "tx errors"}
