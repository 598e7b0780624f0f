// Package interop tests the remote IPAM with Liqo v0.9.4: Liqo's generated client calls our server, and our client
// calls Liqo's server. It is a module of its own, with that version of Liqo. Our side is the command test/ipampeer;
// both communicate over loopback.
package interop
