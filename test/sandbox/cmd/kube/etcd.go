package main

import (
	"context"
	"flag"
	"fmt"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
)

// runEtcd runs a single etcd member on loopback until ctx ends. It does not
// fsync: its data lives no longer than the sandbox.
func runEtcd(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
	dir := flags.String("data-dir", "", "where the member keeps its data")
	client := flags.String("listen-client-url", "", "URL clients are served on")
	peer := flags.String("listen-peer-url", "", "URL peers are served on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	clientURL, err := url.Parse(*client)
	if err != nil {
		return fmt.Errorf("--listen-client-url: %w", err)
	}
	peerURL, err := url.Parse(*peer)
	if err != nil {
		return fmt.Errorf("--listen-peer-url: %w", err)
	}

	cfg := embed.NewConfig()
	cfg.Dir = *dir
	cfg.LogLevel = "error"
	cfg.UnsafeNoFsync = true
	cfg.ListenClientUrls = []url.URL{*clientURL}
	cfg.AdvertiseClientUrls = []url.URL{*clientURL}
	cfg.ListenPeerUrls = []url.URL{*peerURL}
	cfg.AdvertisePeerUrls = []url.URL{*peerURL}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)

	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer etcd.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-etcd.Err():
		return err
	}
}
