package packets

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Pods of one node reach each other and the forwarded loopback, but no pod of another node. Nodes reach each other
// while their link is up.
func TestNetwork(t *testing.T) {
	if err := Possible(); err != nil {
		t.Skip(err)
	}
	network, err := New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, network.Close()) })
	var nodes []*Node
	for index := 1; index <= 2; index++ {
		node, err := network.AddNode(index)
		require.NoError(t, err)
		nodes = append(nodes, node)
		require.NoError(t, node.CountForwarded(8080))
		greet(t, node.Namespace, ":8080")
	}
	var pods []*Pod
	for _, node := range []*Node{nodes[0], nodes[0], nodes[1]} {
		pod, err := node.AddPod()
		require.NoError(t, err)
		t.Cleanup(func() { _ = pod.Close() })
		pods = append(pods, pod)
		greet(t, pod.Namespace, ":8080")
	}
	require.Equal(t, "10.244.1.3", pods[1].Address.String())

	require.Equal(t, pods[0].Address.String(), greeting(t, pods[0].Namespace, pods[1].Address.String()+":8080"), "the caller's own address")
	require.NotZero(t, forwarded(t, nodes[0]))
	require.Empty(t, greeting(t, pods[0].Namespace, pods[2].Address.String()+":8080"), "the ranges of other clusters are not routed")
	require.Equal(t, nodes[0].Address.String(), greeting(t, pods[0].Namespace, nodes[1].Address.String()+":8080"), "masqueraded")
	require.Zero(t, forwarded(t, nodes[1]))
	traced(t, nodes, pods[0])
	require.NoError(t, SetLink(nodes[0], nodes[1], false))
	require.Empty(t, greeting(t, pods[0].Namespace, nodes[1].Address.String()+":8080"))
	require.NoError(t, SetLink(nodes[0], nodes[1], true))
	require.NotEmpty(t, greeting(t, pods[0].Namespace, nodes[1].Address.String()+":8080"))

	outside := greetOn(t, func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") })
	require.NoError(t, pods[0].ForwardLoopback(outside.Port))
	require.Equal(t, "127.0.0.1", greeting(t, pods[0].Namespace, outside.String()))

	require.NoError(t, pods[1].Close())
	again, err := nodes[0].AddPod()
	require.NoError(t, err)
	t.Cleanup(func() { _ = again.Close() })
	require.Equal(t, pods[1].Address, again.Address)
}

// traced probes the second node from a pod of the first one, whose node is the only hop between.
func traced(t *testing.T, nodes []*Node, pod *Pod) {
	t.Helper()
	to := netip.AddrPortFrom(nodes[1].Address, 8080)
	for ttl, want := range []Answer{{From: nodes[0].gateway()}, {From: nodes[1].Address, Arrived: true}} {
		before, err := nodes[0].TimeExceeded()
		require.NoError(t, err)
		got, err := pod.Probe(t.Context(), to, ttl+1)
		require.NoError(t, err)
		require.Equal(t, want, got)
		after, err := nodes[0].TimeExceeded()
		require.NoError(t, err)
		require.Equal(t, want.Arrived, after == before)
	}
	own, err := nodes[0].Addresses()
	require.NoError(t, err)
	require.Subset(t, own, []netip.Addr{nodes[0].Address, nodes[0].gateway()})
	_, sent, err := pod.LinkPackets("eth0")
	require.NoError(t, err)
	require.NotZero(t, sent)
}

func forwarded(t *testing.T, node *Node) int {
	t.Helper()
	packets, err := node.Forwarded(8080)
	require.NoError(t, err)
	return packets
}

// greet sends every caller its address.
func greet(t *testing.T, ns *Namespace, address string) {
	t.Helper()
	greetOn(t, func() (listener net.Listener, err error) {
		err = ns.Do(func() error {
			listener, err = net.Listen("tcp", address)
			return err
		})
		return listener, err
	})
}

func greetOn(t *testing.T, listen func() (net.Listener, error)) *net.TCPAddr {
	t.Helper()
	listener, err := listen()
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, conn.RemoteAddr().(*net.TCPAddr).IP.String())
			_ = conn.Close()
		}
	}()
	return listener.Addr().(*net.TCPAddr)
}

// greeting returns the caller's address as address sees it, or "" if the connection fails.
func greeting(t *testing.T, from *Namespace, address string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	conn, err := from.DialContext(ctx, "tcp", address)
	if err != nil {
		return ""
	}
	defer conn.Close()
	text, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(text)
}
