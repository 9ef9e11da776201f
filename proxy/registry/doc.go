// Package registry follows what says how other resources are served: CustomResourceDefinitions,
// which change how objects are stored and selected, and APIServices, which have another server
// answer for a group.
//
// It uses lanes for both, and stops other lanes when an answer changes.
package registry
