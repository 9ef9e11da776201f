package lane

import "github.com/watchfan/watchfan/proxy/exchange"

// WriteWarnings adds the Warning headers of the lane's responses to r.
func (l *Lane) WriteWarnings(r *exchange.Response) {
	for _, w := range l.collection.Warnings() {
		r.Header.Add("Warning", w)
	}
}
