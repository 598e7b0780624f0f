package main

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// push uploads the index and all images that it names, with the credentials with which the user is logged in to the
// registry.
func push(ctx context.Context, tag name.Tag, index v1.ImageIndex) error {
	err := remote.WriteIndex(tag, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return fmt.Errorf("push %s: %w", tag, err)
	}
	return nil
}
