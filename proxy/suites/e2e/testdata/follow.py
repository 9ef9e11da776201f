"""Follows ConfigMaps with Python's kubernetes, and writes what it knows to a file: follow.py KUBECONFIG FILE."""
import os
import sys

from kubernetes import client, config, watch

config.load_kube_config(sys.argv[1])
api = client.CoreV1Api()
listed = api.list_config_map_for_all_namespaces()
known = {}


def show():
    with open(sys.argv[2] + ".new", "w") as file:
        file.write("".join(f"{name} {version}\n" for name, version in sorted(known.items())))
    os.rename(sys.argv[2] + ".new", sys.argv[2])


def name_of(item):
    return f"{item.metadata.namespace}/{item.metadata.name}"


for item in listed.items:
    known[name_of(item)] = item.metadata.resource_version
show()
version = listed.metadata.resource_version
while True:
    for event in watch.Watch().stream(api.list_config_map_for_all_namespaces, resource_version=version):
        item = event["object"]
        version = item.metadata.resource_version
        if event["type"] == "DELETED":
            known.pop(name_of(item), None)
        else:
            known[name_of(item)] = version
        show()
