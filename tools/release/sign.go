package main

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
)

// readKey reads an ECDSA key in PEM, not encrypted, as `openssl ecparam -name prime256v1 -genkey -noout` makes it.
func readKey(path string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the signing key (KEY=, -key): %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("the signing key (KEY=, -key): %s is not PEM", path)
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the signing key (KEY=, -key): %s: %w", path, err)
	}
	key, is := parsed.(*ecdsa.PrivateKey)
	if !is {
		return nil, fmt.Errorf("the signing key (KEY=, -key): %s is a %T, use an ECDSA key", path, parsed)
	}
	return key, nil
}

// sign writes the signature of the checksums, and so of all artifacts, in Base64, and the public key. docs/releases.md
// has the command that checks it.
func (a artifacts) sign(key *ecdsa.PrivateKey) error {
	sums, err := os.ReadFile(filepath.Join(a.directory, checksumsFile))
	if err != nil {
		return err
	}
	hash := sha256.Sum256(sums)
	signature, err := ecdsa.SignASN1(rand.Reader, key, hash[:])
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := a.writeFile(checksumsFile+".sig", []byte(base64.StdEncoding.EncodeToString(signature))); err != nil {
		return err
	}
	return a.writeFile(checksumsFile+".pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
}
