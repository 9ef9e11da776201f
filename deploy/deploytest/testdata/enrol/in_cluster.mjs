// Reads as a program of Node in a pod does: in_cluster.mjs CLIENTS NAMESPACE NAME, with the folder of
// the installed clients.
import { pathToFileURL } from 'node:url';

const [clients, namespace, name] = process.argv.slice(2);
const { CoreV1Api, KubeConfig, Watch } = await import(pathToFileURL(`${clients}/node_modules/@kubernetes/client-node/dist/index.js`));
const config = new KubeConfig();
config.loadFromCluster();
const { items } = await config.makeApiClient(CoreV1Api).listNamespacedConfigMap({ namespace });
const request = await new Watch(config).watch(`/api/v1/namespaces/${namespace}/configmaps`, {}, (type, object) => {
  if (object.metadata.name === name) {
    console.log('node:', config.getCurrentCluster().server, 'has', items.length, 'ConfigMaps');
    process.exit(0);
  }
}, (err) => { console.log('the watch ended', err); process.exit(1); });
