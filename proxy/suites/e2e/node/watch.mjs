// Watches with a client from npm and prints each event: watch.mjs CLIENT SERVER PATH QUERY TOKEN.
// CLIENT is ws, which is given a WebSocket, or kubernetes, Kubernetes' own client, which uses HTTP.
// The last line is the end of the watch.
import { KubeConfig, Watch } from '@kubernetes/client-node';
import WebSocket from 'ws';

const [client, server, path, query, token] = process.argv.slice(2);
const print = (type, object) => console.log(type, object.metadata.name, object.metadata.resourceVersion);

function watchWebSocket() {
  const bearer = 'base64url.bearer.authorization.k8s.io.' + Buffer.from(token).toString('base64url');
  const socket = new WebSocket(`${server.replace('http', 'ws')}${path}?watch=1&${query}`, [bearer, 'v1'],
    { origin: server, rejectUnauthorized: false });
  socket.on('open', () => socket.ping('hello'));
  socket.on('pong', (data) => console.log('pong', data.toString()));
  socket.on('message', (data) => {
    const { type, object } = JSON.parse(data);
    print(type, object);
  });
  socket.on('close', (code, reason) => console.log('end', code, reason.toString()));
  socket.on('error', (err) => console.log('error', err.message));
}

async function watchKubernetes() {
  const config = new KubeConfig();
  config.loadFromClusterAndUser({ name: 'c', server, skipTLSVerify: true }, { name: 'u', token });
  await new Watch(config).watch(path, Object.fromEntries(new URLSearchParams(query)), print,
    (err) => console.log('end', err ? err.message : ''));
}

await (client === 'ws' ? watchWebSocket() : watchKubernetes());
