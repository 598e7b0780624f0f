// Package toggle has the rules of /api/toggle, which do not depend on the version of Liqo: its parameters, and who may
// use GET.
package toggle

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/problem"
)

// Path is the path of the toggle.
const Path = "/api/toggle"

// Check returns the fault of the parameters id and enable; nil if there is none.
func Check(id, enable string) *problem.Problem {
	switch {
	case enable != "true" && enable != "false":
		return problem.New(http.StatusBadRequest, "the parameter enable is missing or not valid",
			problem.Fault("query.enable", "use true or false"))
	case id == "":
		return problem.New(http.StatusBadRequest, "the parameter id is missing", problem.Fault("query.id", "use the id of a cluster"))
	}
	return nil
}

// ByGet returns the check of a toggle by GET. It rejects a request that a page of another origin may have made a
// browser send. Browsers present client certificates by themselves, so only a bearer token identifies the caller here.
// Over HTTPS browsers send the origin of a request. Over plain HTTP they do not: with --anonymous-toggle any page can
// then toggle.
func ByGet(origins *http.CrossOriginProtection, anonymous bool) func(*http.Request, *caller.Caller) *problem.Problem {
	return func(r *http.Request, who *caller.Caller) *problem.Problem {
		if r.Method == http.MethodHead {
			return problem.MethodNotAllowed("GET, POST")
		}
		asWrite := r.WithContext(r.Context())
		asWrite.Method = http.MethodPost
		if err := origins.Check(asWrite); err != nil {
			return problem.New(http.StatusForbidden, "cross-origin writes are not allowed")
		}
		if who.ByToken {
			return nil
		}
		*who = caller.Caller{}
		if anonymous {
			return nil
		}
		query := r.URL.Query()
		return Unidentified(query.Get("id"), query.Get("enable"))
	}
}

// Unidentified is the problem of a caller that is not identified.
func Unidentified(id, enable string) *problem.Problem {
	return problem.New(http.StatusUnauthorized, caller.ErrStranger.Error()+"; "+correctCall(id, enable)).Authenticate("Bearer")
}

// Hint is the remedy for a caller that is not identified.
func Hint(r *http.Request) string {
	query := r.URL.Query()
	return correctCall(query.Get("id"), query.Get("enable"))
}

// correctCall is a command that toggles.
func correctCall(id, enable string) string {
	if len(validation.IsDNS1123Label(id)) > 0 {
		id = "CLUSTER"
	}
	if enable != "true" && enable != "false" {
		enable = "true|false"
	}
	return fmt.Sprintf(`use: curl -X POST -H "Authorization: Bearer $TOKEN" 'https://…%s?id=%s&enable=%s'`, Path, id, enable)
}
