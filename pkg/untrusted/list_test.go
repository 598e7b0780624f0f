package untrusted

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type listed struct {
	Metadata struct {
		Name Name `json:"name"`
	} `json:"metadata"`
	Amount Quantity  `json:"amount"`
	Some   Few[Name] `json:"some"`
}

func TestAListIsReadItemByItem(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want []string
		err  string
	}{
		"what an API server answers": {
			body: `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":""},"items":[` +
				`{"metadata":{"name":"a"},"spec":{"deep":[[{}]]},"amount":"250m"},{"metadata":{"name":"b"},"amount":1}]}` + "\n",
			want: []string{"a 250m", "b 1"},
		},
		"any order": {
			body: `{"items":[{"metadata":{"name":"a"}}],"metadata":{},"more":[1],"kind":"List"}`, want: []string{"a 0"},
		},
		"none":                    {body: `{"items":[]}`},
		"null":                    {body: `{"metadata":{},"items":null}`},
		"null in an item":         {body: `{"items":[{"metadata":null,"amount":null,"some":null}]}`, want: []string{" 0"}},
		"nothing":                 {body: ``, err: "unexpected EOF"},
		"an empty object":         {body: `{}`, err: "the response is not a list"},
		"a list without a kind":   {body: `[]`, err: "the response is not a list"},
		"another kind":            {body: `{"kind":"Status","items":[]}`, err: "the response is a Status, not a list"},
		"a text":                  {body: `<html>`, err: "invalid character"},
		"items that are none":     {body: `{"items":{}}`, err: "items is not an array"},
		"what is cut off":         {body: `{"items":[{"metadata":{"name":"a"}}`, err: "EOF", want: []string{"a 0"}},
		"cut off behind the list": {body: `{"items":[]`, err: "EOF"},
		"a long name": {
			body: `{"items":[{"metadata":{"name":"` + strings.Repeat("x", 254) + `"}}]}`, err: "a name of 256 bytes",
		},
		"a long token":              {body: `{"metadata":{"continue":"` + strings.Repeat("x", 5000) + `"},"items":[]}`, err: "too long"},
		"a huge quantity":           {body: `{"items":[{"amount":"1e-2000000000"}]}`, err: "30 digits"},
		"a huge number":             {body: `{"items":[{"amount":1e-2000000000}]}`, err: "30 digits"},
		"another list":              {body: `{"items":[{"some":7}]}`, err: "not an array"},
		"an error with a long text": {body: `{"items":[{"metadata":` + strings.Repeat("1", 5000) + `}]}`, err: "cannot unmarshal number"},
	} {
		t.Run(name, func(t *testing.T) {
			_, client := provider(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Accept") != "application/json" || r.URL.RawQuery != "labelSelector=a%3Db&limit=500" {
					w.WriteHeader(http.StatusBadRequest)
				}
				_, _ = io.WriteString(w, tc.body)
			})
			var got []string
			err := List(t.Context(), Lists{Client: client.CoreV1().RESTClient(), Namespace: "ns", Resource: "pods"},
				metav1.ListOptions{LabelSelector: "a=b"},
				func(item *listed) { got = append(got, string(item.Metadata.Name)+" "+item.Amount.String()) })
			require.Equal(t, tc.want, got)
			if tc.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "list of pods in remote namespace ns: ")
			require.ErrorContains(t, err, tc.err)
			require.Less(t, len(err.Error()), MaxText+200)
		})
	}
}

func TestFewKeepsTheFirst(t *testing.T) {
	var kept Few[Name]
	require.NoError(t, kept.UnmarshalJSON([]byte(`["a"`+strings.Repeat(`,"b"`, 1000)+`]`)))
	require.Len(t, kept, maxElements)
	require.Equal(t, Name("a"), kept[0])
}
