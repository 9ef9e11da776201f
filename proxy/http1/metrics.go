package http1

import "github.com/watchfan/watchfan/proxy/apistatus"

var rejectedMalformed = apistatus.Rejections("malformed")
