// Package remember keeps kube-apiserver from being asked the same twice: an answer is remembered for a
// time ([TTLCache]), and those who ask the same at the same time share one call ([Coalescer]).
//
// It knows neither questions nor answers.
package remember
