// A hand type: a folder in which the programs run that the machine's owner names, and no others.
//
//	programs SOCKET PROGRAM...
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "carpal/v1"
)

const keptBytes = 20_000 // of output, for the model

type server struct {
	pb.UnimplementedHandServer // whatever is not below is refused
	programs                   []string
	lock                       sync.Mutex
	folders                    map[string]string             // by hand_id
	running                    map[string]context.CancelFunc // by hand_id and call_id
}

func (s *server) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	schema, err := json.Marshal(map[string]any{
		"type": "object",
		"properties": map[string]any{
			"program":   map[string]any{"type": "string", "enum": s.programs},
			"arguments": map[string]any{"type": "array", "items": map[string]any{"type": "string"}},
		},
		"required": []string{"program"},
	})
	return &pb.DescribeResponse{Types: []*pb.HandTypeInfo{{
		Type:        "programs",
		Description: "A folder, and some programs that run in it.",
		Tools:       []*pb.ToolInfo{{Name: "run", Description: "Run a program.", InputSchema: schema}},
	}}}, err
}

func (s *server) Provision(asked *pb.ProvisionRequest, to pb.Hand_ProvisionServer) error {
	folder, err := os.MkdirTemp("", "programs-")
	if err != nil {
		return err
	}
	s.lock.Lock()
	s.folders[asked.HandId] = folder
	s.lock.Unlock()
	made := &pb.ProvisionResult{Note: "Programs run in " + folder + "."}
	return to.Send(&pb.ProvisionResponse{Step: &pb.ProvisionResponse_Result{Result: made}})
}

func (s *server) Execute(asked *pb.ExecuteRequest, to pb.Hand_ExecuteServer) error {
	// It stops when its time is over, when it is cancelled, and when nobody watches any more.
	stop, cancel := context.WithTimeout(to.Context(), asked.TimeLimit.AsDuration())
	defer cancel()
	id := asked.HandId + "/" + asked.CallId
	s.lock.Lock()
	folder, there := s.folders[asked.HandId]
	s.running[id] = cancel
	s.lock.Unlock()
	defer s.ended(id)
	if !there {
		return status.Error(codes.NotFound, "there is no hand "+asked.HandId)
	}
	var input struct {
		Program   string
		Arguments []string
	}
	if err := json.Unmarshal(asked.Input, &input); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	said := &output{to: to}
	outcome, content := s.run(stop, folder, input.Program, input.Arguments, said)
	result := &pb.Result{Outcome: outcome, Content: content, OutputBytes: said.bytes}
	return to.Send(&pb.ExecuteResponse{Step: &pb.ExecuteResponse_Result{Result: result}})
}

func (s *server) ended(id string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.running, id)
}

// run ends when the program and all it started did.
func (s *server) run(
	stop context.Context, folder, program string, arguments []string, said *output,
) (pb.Outcome, string) {
	if !strings.Contains("\n"+strings.Join(s.programs, "\n")+"\n", "\n"+program+"\n") {
		there := strings.Join(s.programs, ", ")
		return pb.Outcome_OUTCOME_ERROR, fmt.Sprintf("no program %q here: run one of %s", program, there)
	}
	command := exec.Command(program, arguments...)
	command.Dir, command.Stdout, command.Stderr = folder, said, said
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return pb.Outcome_OUTCOME_ERROR, err.Error()
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return pb.Outcome_OUTCOME_ERROR, said.text() + exit.Error()
		} else if err != nil {
			return pb.Outcome_OUTCOME_ERROR, said.text() + err.Error()
		}
		return pb.Outcome_OUTCOME_OK, said.text() + "[ended well]"
	case <-stop.Done():
		syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		<-ended
		if stop.Err() == context.DeadlineExceeded {
			return pb.Outcome_OUTCOME_TIMED_OUT, said.text() + "[stopped: its time was over]"
		}
		return pb.Outcome_OUTCOME_CANCELLED, said.text() + "[stopped]"
	}
}

func (s *server) Cancel(_ context.Context, asked *pb.CancelRequest) (*pb.CancelResponse, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if cancel, there := s.running[asked.HandId+"/"+asked.CallId]; there {
		cancel()
		return &pb.CancelResponse{State: pb.CallState_CALL_STATE_RUNNING}, nil
	}
	return &pb.CancelResponse{State: pb.CallState_CALL_STATE_UNKNOWN}, nil
}

func (s *server) Release(_ context.Context, asked *pb.ReleaseRequest) (*pb.ReleaseResponse, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for id, cancel := range s.running {
		if strings.HasPrefix(id, asked.HandId+"/") {
			cancel()
		}
	}
	err := os.RemoveAll(s.folders[asked.HandId])
	delete(s.folders, asked.HandId)
	return &pb.ReleaseResponse{Ended: true}, err
}

// output goes to who watches as it comes; its beginning is kept for the result.
type output struct {
	to    pb.Hand_ExecuteServer
	bytes uint64
	kept  []byte
}

func (o *output) Write(data []byte) (int, error) {
	if room := keptBytes - len(o.kept); room > 0 {
		o.kept = append(o.kept, data[:min(room, len(data))]...)
	}
	chunk := &pb.OutputChunk{Offset: o.bytes, Data: data}
	o.bytes += uint64(len(data))
	return len(data), o.to.Send(&pb.ExecuteResponse{Step: &pb.ExecuteResponse_Output{Output: chunk}})
}

func (o *output) text() string { return strings.ToValidUTF8(string(o.kept), "\uFFFD") }

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func main() {
	path, programs := os.Args[1], os.Args[2:]
	os.Remove(path) // of one that was killed
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	hands := grpc.NewServer()
	pb.RegisterHandServer(hands, &server{
		programs: programs,
		folders:  map[string]string{},
		running:  map[string]context.CancelFunc{},
	})
	fmt.Println("serving on", path)
	log.Fatal(hands.Serve(listener))
}
