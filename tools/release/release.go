package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// release describes the release to build. The content of the image depends only on it and on the source.
type release struct {
	version, commit string
	// time is the time of the commit, and of all files in the image.
	time time.Time
}

// readRelease reads a clone with git, and the time from SOURCE_DATE_EPOCH, if that is set. Without a version it uses
// the tag of the commit, or builds one from its time and hash as the Go command does: a shallow clone has both.
func readRelease(ctx context.Context, dir, version string) (release, error) {
	if strings.ContainsAny(version, " \t\n'\"") {
		return release{}, fmt.Errorf("the version (VERSION=, -version) must not contain spaces or quotes: %q", version)
	}
	commit, err := git(ctx, dir, "rev-parse", "HEAD")
	if err != nil {
		return release{}, err
	}
	r := release{version: version, commit: commit}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = git(ctx, dir, "show", "--no-patch", "--format=%ct", "HEAD"); err != nil {
			return release{}, err
		}
	}
	epoch, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return release{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	r.time = time.Unix(epoch, 0).UTC()
	if r.version != "" {
		return r, nil
	}
	if r.version, err = git(ctx, dir, "describe", "--tags", "--exact-match", "--match=v*", "HEAD"); err != nil {
		r.version = fmt.Sprintf("v0.0.0-%s-%.12s", r.time.Format("20060102150405"), commit)
	}
	changes, err := git(ctx, dir, "status", "--porcelain")
	if err != nil {
		return release{}, err
	}
	if changes != "" {
		r.version += "-dirty"
	}
	return r, nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...) //nolint:gosec // The arguments are those above.
	cmd.Dir = dir
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s in %s: %w: %s", args[0], dir, err, strings.TrimSpace(problem.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
