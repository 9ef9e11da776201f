package framing

// CombineCRC is what a member's CRC-32 is made with.
var CombineCRC = combineCRC
