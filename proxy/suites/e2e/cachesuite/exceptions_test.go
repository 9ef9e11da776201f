package cachesuite

// exceptions are the tests of the suite that don't pass at kube-apiserver over REST, with the
// reason. They don't pass at watchfan either.
var exceptions = byName(map[string][]string{
	"REST can't list an object's key as a prefix, or a prefix as an object's key": {
		"RunTestGetListRecursivePrefix/Consistent/NonRecursive_on_namespace_prefix_doesn't_return_any_objects",
		"RunTestGetListRecursivePrefix/Consistent/NonRecursive_on_resource_prefix_doesn't_return_any_objects",
		"RunTestGetListRecursivePrefix/Consistent/Recursive_on_object_key_(no-prefix)_doesn't_return_anything",
		"RunTestGetListRecursivePrefix/Consistent/Recursive_on_object_key_(prefix)_doesn't_return_anything",
		"RunTestGetListRecursivePrefix/Exact/NonRecursive_on_namespace_prefix_doesn't_return_any_objects",
		"RunTestGetListRecursivePrefix/Exact/NonRecursive_on_resource_prefix_doesn't_return_any_objects",
		"RunTestGetListRecursivePrefix/Exact/Recursive_on_object_key_(no-prefix)_doesn't_return_anything",
		"RunTestGetListRecursivePrefix/Exact/Recursive_on_object_key_(prefix)_doesn't_return_anything",
		"RunTestGetListRecursivePrefix/NotOlderThan/NonRecursive_on_namespace_prefix_doesn't_return_any_objects",
		"RunTestGetListRecursivePrefix/NotOlderThan/NonRecursive_on_resource_prefix_doesn't_return_any_objects",
		"RunTestGetListRecursivePrefix/NotOlderThan/Recursive_on_object_key_(no-prefix)_doesn't_return_anything",
		"RunTestGetListRecursivePrefix/NotOlderThan/Recursive_on_object_key_(prefix)_doesn't_return_anything",
	},
	"the suite leaves it out where there is a cache": {
		"RunTestList/test_List_with_limit_at_resource_version_0",
		"RunTestList/test_List_with_limit_at_resource_version_0_match=NotOlderThan",
	},
	"it passes up to where it must compact a cache": {
		"RunTestWatchFromZero",
	},
	"resourceVersion 1 is older than the history of a real cluster": {
		"RunWatchSemantics/allowWatchBookmarks=false,_sendInitialEvents=false,_RV=1",
		"RunWatchSemantics/allowWatchBookmarks=true,_sendInitialEvents=false,_RV=1",
	},
})

// differences are the tests of the suite that pass at kube-apiserver, and don't at watchfan, with
// the reason why watchfan's answer is allowed.
var differences = byName(map[string][]string{
	"watchfan still has history that etcd has compacted, and answers": {
		"RunTestCompactRevision",
		"RunTestList/test_List_on_existing_key_with_resource_version_set_before_first_write,_match=Exact",
		"RunTestList/test_List_with_continue,_resource_version_before_first_write",
		"RunTestList/test_List_with_resource_version_set_before_first_write,_match=Exact",
	},
	"a list at resourceVersion 0 may be older than one that watchfan has passed on to kube-apiserver": {
		"RunTestConsistentList/Non-consistent_request_after_consistent_read",
	},
})

// byName returns the reasons by the name of the test.
func byName(names map[string][]string) map[string]string {
	reasons := make(map[string]string)
	for reason, tests := range names {
		for _, name := range tests {
			reasons[name] = reason
		}
	}
	return reasons
}
