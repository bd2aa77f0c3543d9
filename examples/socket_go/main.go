// An example of a system behind sockets in Go, with the standard library only:
//
//	(cd examples/socket_go && go build -o socket-go .)
//	./tidegauge run filters --domain flights --pipeline examples/socket_go/pipeline.toml --transport tcp
//
// It receives records over TCP or UDP and publishes the stage `ingest`, the unchanged bytes. See
// docs/sockets.md.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

const (
	headBytes = 34
	// Offsets in the head.
	streamAt, topicAt, sequenceAt, keyBytesAt = 12, 14, 16, 32
	probes, end, hello                        = 63, 255, 254
	mostBytes                                 = 1 << 20
	bufferBytes                               = 1 << 18
)

// answers sends results, which are numbered.
type answers struct {
	stream bool
	out    *bufio.Writer
	socket net.Conn
	head   [headBytes]byte
	sent   uint64
}

func (a *answers) send(topic byte, sequence uint64, key, value []byte) {
	head := a.head
	head[topicAt] = topic
	binary.BigEndian.PutUint64(head[sequenceAt:], sequence)
	binary.BigEndian.PutUint16(head[keyBytesAt:], uint16(len(key)))
	if !a.stream {
		frame := append(append(append(make([]byte, 0, headBytes+len(key)+len(value)), head[:]...), key...), value...)
		_, err := a.socket.Write(frame)
		exitOn(err)
		return
	}
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(headBytes+len(key)+len(value)))
	for _, part := range [][]byte{length[:], head[:], key, value} {
		_, err := a.out.Write(part)
		exitOn(err)
	}
}

// system counts the records of the load and answers each.
type system struct {
	to       *answers
	received uint64
}

func (s *system) take(frame []byte) {
	if len(frame) < headBytes {
		return
	}
	switch topic := frame[topicAt]; topic {
	case hello:
	case end:
		var count [8]byte
		binary.BigEndian.PutUint64(count[:], s.received)
		s.to.send(end, s.to.sent, nil, count[:])
	default:
		if binary.BigEndian.Uint16(frame[streamAt:]) != probes {
			s.received++
		}
		begin := headBytes + int(binary.BigEndian.Uint16(frame[keyBytesAt:]))
		if begin > len(frame) {
			return
		}
		s.to.send(0, s.to.sent, frame[headBytes:begin], frame[begin:])
		s.to.sent++
	}
}

func (s *system) readStream(address string) {
	server, err := net.Listen("tcp", address)
	exitOn(err)
	for {
		client, err := server.Accept()
		exitOn(err)
		in, length, frame := bufio.NewReaderSize(client, bufferBytes), [4]byte{}, make([]byte, mostBytes)
		for {
			if in.Buffered() < len(length) {
				exitOn(s.to.out.Flush()) // nothing more has arrived
			}
			if _, err := io.ReadFull(in, length[:]); err != nil {
				break
			}
			size := binary.BigEndian.Uint32(length[:])
			if size > mostBytes {
				break
			}
			if _, err := io.ReadFull(in, frame[:size]); err != nil {
				break
			}
			s.take(frame[:size])
		}
		client.Close()
	}
}

func (s *system) readDatagrams(address string) {
	place, err := net.ResolveUDPAddr("udp", address)
	exitOn(err)
	socket, err := net.ListenUDP("udp", place)
	exitOn(err)
	exitOn(socket.SetReadBuffer(8 << 20))
	frame := make([]byte, 1<<16)
	for {
		size, err := socket.Read(frame)
		exitOn(err)
		s.take(frame[:size])
		if s.to.stream {
			exitOn(s.to.out.Flush())
		}
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	variable := os.Getenv
	if stages := variable("TIDEGAUGE_STAGES"); stages != "ingest" {
		exitOn(fmt.Errorf("the stages are %s; this program publishes ingest only", stages))
	}
	transport, output := variable("TIDEGAUGE_SOCKET_TRANSPORT"), variable("TIDEGAUGE_SOCKET_ANSWERS")
	if strings.Contains(transport+output, "zeromq") {
		exitOn(fmt.Errorf("this program speaks tcp and udp"))
	}
	to := &answers{stream: output == "tcp"}
	tag, err := hex.DecodeString(variable("TIDEGAUGE_SOCKET_TAG"))
	exitOn(err)
	copy(to.head[:], "TGF1")
	copy(to.head[4:], tag)
	to.socket, err = net.Dial(output, variable("TIDEGAUGE_SOCKET_OUTPUT"))
	exitOn(err)
	to.out = bufio.NewWriterSize(to.socket, bufferBytes)
	s := &system{to: to}
	if transport == "tcp" {
		s.readStream(variable("TIDEGAUGE_SOCKET_INPUT"))
	} else {
		s.readDatagrams(variable("TIDEGAUGE_SOCKET_INPUT"))
	}
}
