# Reads as a program of Python in a pod does: a list, and a watch until a ConfigMap that was listed.
import sys
from kubernetes import client, config, watch

namespace, name = sys.argv[1:]
config.load_incluster_config()
core = client.CoreV1Api()
found = len(core.list_namespaced_config_map(namespace).items)
for event in watch.Watch().stream(core.list_namespaced_config_map, namespace, timeout_seconds=60):
    if event["object"].metadata.name == name:
        print("python:", core.api_client.configuration.host, "has", found, "ConfigMaps")
        sys.exit(0)
sys.exit("the watch ended")
