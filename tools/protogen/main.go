// Command protogen writes the Go code of one .proto file with protoc-gen-go and protoc-gen-go-grpc at the versions of
// this module: protogen FILE.proto OUTPUT_DIRECTORY. It compiles with protocompile, which is written in Go, unlike
// protoc.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: protogen FILE.proto OUTPUT_DIRECTORY")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file, out string) error {
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{filepath.Dir(file)}},
		SourceInfoMode: protocompile.SourceInfoStandard, // Comments are copied into the code.
	}
	name := filepath.Base(file)
	compiled, err := compiler.Compile(ctx, name)
	if err != nil {
		return err
	}
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{name},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protoutil.ProtoFromFileDescriptor(compiled[0])},
	})
	if err != nil {
		return err
	}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := generate(ctx, plugin, request, out); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return nil
}

// generate speaks the protocol of protoc's plugins: a request on stdin, the files on stdout.
func generate(ctx context.Context, plugin string, request []byte, out string) error {
	cmd := exec.CommandContext(ctx, "go", "tool", plugin) //nolint:gosec // One of two that run names.
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), os.Stderr
	stdout, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(stdout, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, f := range response.GetFile() {
		if err := write(filepath.Join(out, f.GetName()), f.GetContent()); err != nil {
			return err
		}
	}
	return nil
}

func write(path, content string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := file.WriteString(content); err != nil {
		return errors.Join(err, file.Close())
	}
	return file.Close()
}
