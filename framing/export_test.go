package framing

// CombineCRC computes a member's CRC-32.
var CombineCRC = combineCRC

// PlainLen returns the number of bytes that d stands for.
func (d Deflated) PlainLen() uint64 { return d.plain.n }
