package controlplane

import (
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"
)

// AuditLog is the path of the API server's log of requests by ServiceAccounts of Config.Audited: one audit.k8s.io/v1
// Event in JSON a line, without bodies.
func (c *Cluster) AuditLog() string { return filepath.Join(c.cfg.Dir, "audit.log") }

func (c *Cluster) auditPolicyFile() string { return filepath.Join(c.cfg.Dir, "audit-policy.yaml") }

// auditArgs returns the API server's arguments for auditing; none if no user is audited.
func (c *Cluster) auditArgs() ([]string, error) {
	if len(c.cfg.Audited) == 0 {
		return nil, nil
	}
	policy := auditv1.Policy{
		TypeMeta:   metav1.TypeMeta{APIVersion: auditv1.SchemeGroupVersion.String(), Kind: "Policy"},
		OmitStages: []auditv1.Stage{auditv1.StageRequestReceived},
	}
	for _, namespace := range c.cfg.Audited {
		policy.Rules = append(policy.Rules, auditv1.PolicyRule{
			Level: auditv1.LevelMetadata, UserGroups: []string{"system:serviceaccounts:" + namespace},
		})
	}
	text, err := yaml.Marshal(policy)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.auditPolicyFile(), text, 0o600); err != nil {
		return nil, err
	}
	return []string{
		"--audit-policy-file=" + c.auditPolicyFile(), "--audit-log-path=" + c.AuditLog(),
		"--audit-log-mode=blocking", "--audit-log-maxsize=4096", // In MB; at the default of 100 it would begin a new file.
	}, nil
}
