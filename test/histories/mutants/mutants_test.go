package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAllMutantsCanBeMade(t *testing.T) {
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	all := mutants()
	for _, m := range testedMutants() {
		all = append(all, m.mutant)
	}
	for _, m := range all {
		_, err := m.mutated(root)
		require.NoError(t, err, m.name)
		require.NotEqual(t, m.old, m.new, m.name)
	}
}
