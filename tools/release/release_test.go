package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheVersionComesFromTheCommitAlone(t *testing.T) {
	untagged := func(commit string) string { return "v0.0.0-20260102030405-" + commit[:12] }
	for name, tc := range map[string]struct {
		change  func(c clone)
		version string
		want    func(commit string) string
	}{
		"a commit without a tag has its time and hash": {
			func(clone) {}, "", untagged,
		},
		"a tag is the version": {
			func(c clone) { c.git("tag", "v1.2.3") }, "", func(string) string { return "v1.2.3" },
		},
		"a tag that is no version is not": {
			func(c clone) { c.git("tag", "last-good") }, "", untagged,
		},
		"a tag of an earlier commit is not": {
			func(c clone) { c.git("tag", "v1.2.3"); c.write("new", ""); c.commit("More") }, "", untagged,
		},
		"what is not committed shows": {
			func(c clone) { c.git("tag", "v1.2.3"); c.write("LICENSE", "Other.") },
			"", func(string) string { return "v1.2.3-dirty" },
		},
		"what git does not know yet shows": {
			func(c clone) { c.git("tag", "v1.2.3"); c.write("new.go", "") }, "", func(string) string { return "v1.2.3-dirty" },
		},
		"a version that is given prevails": {
			func(c clone) { c.git("tag", "v1.2.3"); c.write("LICENSE", "Other.") }, "v9", func(string) string { return "v9" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClone(t)
			tc.change(c)
			r, err := readRelease(t.Context(), c.dir, tc.version)
			require.NoError(t, err)
			require.Equal(t, c.git("rev-parse", "HEAD"), r.commit)
			require.Equal(t, tc.want(r.commit), r.version)
		})
	}
}

func TestTheTimeOfTheSourceCanBeGiven(t *testing.T) {
	c := newClone(t)
	t.Setenv("SOURCE_DATE_EPOCH", "0")
	r, err := readRelease(t.Context(), c.dir, "")
	require.NoError(t, err)
	require.Equal(t, "v0.0.0-19700101000000-"+r.commit[:12], r.version)
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	_, err = readRelease(t.Context(), c.dir, "")
	require.ErrorContains(t, err, "SOURCE_DATE_EPOCH")
}
