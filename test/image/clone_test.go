package image

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// repository returns the directory of the repository that contains this file.
func repository() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Clean(filepath.Join(filepath.Dir(file), "../.."))
}

func command(ctx context.Context, t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	require.NoError(t, err, "%s %v\n%s%s", name, args, out, problem.String())
	return string(out)
}

// cloneTo clones this repository, including uncommitted changes.
func cloneTo(t *testing.T, dir string) {
	t.Helper()
	ctx := t.Context()
	command(ctx, t, repository(), nil, "git", "clone", "--quiet", ".", dir)
	// git lists new files only if they are in an index. The user's index is not touched.
	index := []string{"GIT_INDEX_FILE=" + filepath.Join(t.TempDir(), "index")}
	command(ctx, t, repository(), index, "git", "read-tree", "HEAD")
	command(ctx, t, repository(), index, "git", "add", "--all")
	changes := command(ctx, t, repository(), index, "git", "diff", "--cached", "--binary", "HEAD")
	if changes == "" {
		return
	}
	patch := filepath.Join(t.TempDir(), "patch")
	require.NoError(t, os.WriteFile(patch, []byte(changes), 0o600))
	command(ctx, t, dir, nil, "git", "apply", "--index", patch)
	// All inputs of a commit's hash are fixed, so that every clone has the same hash.
	when := []string{
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.test", "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z",
		"GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.test", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z",
	}
	command(ctx, t, dir, when, "git", "commit", "--quiet", "--message", "What is not committed yet")
}

// makeImage runs make image for this machine's platform and returns the archive and its digest.
func makeImage(t *testing.T, dir string, env ...string) (archive, digest string) {
	t.Helper()
	env = append([]string{
		"PLATFORMS=linux/" + runtime.GOARCH, "IMAGE=", "VERSION=", "PUSH=", "SOURCE_DATE_EPOCH=", "MAKEFLAGS=",
	}, env...)
	out := command(t.Context(), t, dir, env, "make", "--no-print-directory", "--silent", "image")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 2, out)
	_, digest, _ = strings.Cut(lines[1], "@")
	require.Regexp(t, "^sha256:[0-9a-f]{64}$", digest)
	return lines[0], digest
}
