// Package wire is the protocol of Liqo v0.x's IPAM, generated from remote_ipam.proto.
package wire

//go:generate go -C ../../../tools run ./protogen ../pkg/ipam/wire/remote_ipam.proto ../pkg/ipam/wire
