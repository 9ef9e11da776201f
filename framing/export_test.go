package framing

// CombineCRC is what a member's CRC-32 is made with.
var CombineCRC = combineCRC

// PlainLen returns the number of bytes that d stands for.
func (d Deflated) PlainLen() uint64 { return d.plain.n }
