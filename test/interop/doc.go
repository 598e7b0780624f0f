// Package interop tests the remote IPAM against the real thing: Liqo v0.9.4's own generated client asks our server, and
// our client asks Liqo v0.9.4's own server. It is a module of its own, with that version of Liqo; our side is the
// command test/ipampeer, and the two talk over loopback.
package interop
