package e2e_test

import "github.com/watchfan/watchfan/proxy/proxytest"

// informerCases are all ways to run the program, except typed informers of custom resources and
// dynamic informers in protobuf, which do not exist.
func informerCases() []proxytest.Informers {
	var all []proxytest.Informers
	for _, release := range proxytest.ClientGoReleases {
		for _, kind := range [][2]string{{"typed", "json"}, {"typed", "protobuf"}, {"dynamic", "json"},
			{"metadata", "json"}, {"metadata", "protobuf"}} {
			for _, watchList := range []bool{false, true} {
				all = append(all, proxytest.Informers{Release: release, Client: kind[0],
					Representation: kind[1], WatchList: watchList})
			}
		}
	}
	return all
}

// lastObject is the name of the object that informers wait for.
const lastObject = "last"
