package diagnose

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/base/account"
)

// The page says who holds most, and of what. Names are for clients on this host.
func TestAccountsPage(t *testing.T) {
	l := account.New(account.LimitsOf(400 << 20))
	for name, bytes := range map[string]int64{"ann": 3 << 20, "bob\x1b[31m": 1 << 20} {
		l.Open(account.Source{Name: name}, account.Answers, nil).Set(bytes)
	}
	l.Open(account.Source{Name: "10.1.2.3", Stranger: true}, account.Bodies, nil).Set(2 << 20)
	ask := func(query string, names bool) string {
		w := httptest.NewRecorder()
		AccountsPage(l)(w, httptest.NewRequest("GET", AccountsPath+query, nil), names)
		return w.Body.String()
	}
	var d DebugAccounts
	if err := json.Unmarshal([]byte(ask("?format=json", true)), &d); err != nil {
		t.Fatal(err)
	}
	if d.Sources != 3 || d.Held["answers"] != 4<<20 || d.Strangers != 2<<20 || d.Limits.Each != 50<<20 ||
		len(d.Largest) != 3 || d.Largest[0].Source != "ann" || d.Largest[1].Source != "10.1.2.3" || !d.Largest[1].Stranger {
		t.Errorf("got %+v", d)
	}
	text := ask("", true)
	for _, want := range []string{"answers      4.0MiB", "ann ", "10.1.2.3, a stranger", "12MiB of all strangers"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Error("a name reaches the terminal as it is")
	}
	if hidden := ask("", false) + ask("?format=json", false); strings.Contains(hidden, "ann") || strings.Contains(hidden, "10.1.2.3") {
		t.Errorf("names are shown to other hosts:\n%s", hidden)
	}
	if got := ask("?limit=1", true); !strings.Contains(got, "limit") {
		t.Errorf("got %q", got)
	}
}
