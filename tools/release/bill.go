package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// locatorOf returns the package URL of a module: in lower case, and with + as %2B.
func locatorOf(module, version string) string {
	return "pkg:golang/" + strings.ToLower(module) + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// writeBill writes NAME.spdx.json, the modules that the programs in an artifact were built from, as their build
// information has them.
func (a artifacts) writeBill(name, purpose string, binaries ...string) error {
	bill := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		DocumentNamespace: fmt.Sprintf("%s/%s/%s/%x", home, a.release.version, name,
			sha256.Sum256([]byte(a.release.commit+name))),
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "liqo-broker-vk-release-" + a.release.version}},
			Created:  a.release.time.Format("2006-01-02T15:04:05Z"),
		},
	}
	artifact := common.ElementID("Artifact")
	bill.Packages = append(bill.Packages, &v2_3.Package{
		PackageName: name, PackageSPDXIdentifier: artifact, PackageVersion: a.release.version,
		PackageDownloadLocation: "NOASSERTION", PackageLicenseDeclared: "Apache-2.0", PrimaryPackagePurpose: purpose,
	})
	bill.Relationships = append(bill.Relationships, &v2_3.Relationship{
		RefA: common.MakeDocElementID("", "DOCUMENT"), RefB: common.MakeDocElementID("", string(artifact)),
		Relationship: common.TypeRelationshipDescribe,
	})
	modules := map[string]debug.Module{}
	for _, binary := range binaries {
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			return err
		}
		modules[locatorOf("stdlib", strings.TrimPrefix(info.GoVersion, "go"))] = debug.Module{Path: "stdlib", Version: info.GoVersion}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			if m.Version != "" { // A module of this repository has none.
				modules[locatorOf(m.Path, m.Version)] = *m
			}
		}
	}
	for i, locator := range slices.Sorted(maps.Keys(modules)) {
		m := modules[locator]
		id := common.ElementID(fmt.Sprintf("Module-%d", i+1))
		bill.Packages = append(bill.Packages, &v2_3.Package{
			PackageName: m.Path, PackageSPDXIdentifier: id, PackageVersion: m.Version, PackageDownloadLocation: "NOASSERTION",
			PackageExternalReferences: []*v2_3.PackageExternalReference{{
				Category: common.CategoryPackageManager, RefType: "purl", Locator: locator,
			}},
		})
		bill.Relationships = append(bill.Relationships, &v2_3.Relationship{
			RefA: common.MakeDocElementID("", string(artifact)), RefB: common.MakeDocElementID("", string(id)),
			Relationship: common.TypeRelationshipDependsOn,
		})
	}
	var text bytes.Buffer
	if err := spdxjson.Write(bill, &text, spdxjson.Indent("  ")); err != nil {
		return fmt.Errorf("%s.spdx.json: %w", name, err)
	}
	return a.writeFile(name+".spdx.json", text.Bytes())
}
