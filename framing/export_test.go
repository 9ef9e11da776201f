package framing

// CombineCRC computes a member's CRC-32.
var CombineCRC = combineCRC
