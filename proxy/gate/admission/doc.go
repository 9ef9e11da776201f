// Package admission bounds what clients have at a time: it decides whether a watch or list may begin
// ([Admission]), and gives memory back before the process has none left ([Memory]).
//
//	admission.go  the limits on watches, of all users and of one
//	memory.go     how short memory is, and what is then refused; the account of what is held for clients
//	relief.go     what is given back, and in which order
//
// It knows users by name, and requests by what they cost. It knows no cache: what can be given back
// is behind a [Reliever].
package admission
