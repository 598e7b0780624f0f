package sandbox

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Backup writes the content of the cluster's etcd to a file, as etcdctl snapshot save does.
func (c *Cluster) Backup(ctx context.Context, file string) error {
	endpoint := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(c.plane.EtcdPort()))
	_, err := snapshot.NewV3(zap.NewNop()).Save(ctx,
		clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()}, file)
	return err
}

// Restore ends all processes of a cluster, initializes its etcd from the file of Backup, as etcdutl snapshot restore
// does, and restarts them. Revisions begin a billion above the backup's, and all earlier ones count as compacted
// (--bump-revision, --mark-compacted), so that watches from other clusters list again.
func (s *Sandbox) Restore(ctx context.Context, cluster, file string) error {
	if err := s.Kill(cluster); err != nil {
		return err
	}
	c := s.Cluster(cluster)
	if err := os.RemoveAll(c.dir("etcd")); err != nil {
		return err
	}
	const peer = "http://127.0.0.1:2380" // A single member never dials it.
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: c.dir("etcd"), Name: "default", PeerURLs: []string{peer}, InitialCluster: "default=" + peer,
		InitialClusterToken: "restored", RevisionBump: 1_000_000_000, MarkCompacted: true,
	})
	if err != nil {
		return fmt.Errorf("restoring etcd of %s: %w", cluster, err)
	}
	return s.Restart(ctx, cluster)
}
