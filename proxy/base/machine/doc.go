// Package machine reads what the kernel says of this process: its memory, its control group's limit,
// its processor time and its open files.
package machine
