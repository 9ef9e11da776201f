// Watches objects on one session of node's http2, and gets each of them at the same time:
// http2.mjs TOKEN PATH RESOURCEVERSION NAMES SERVER...
// It prints each event, each object that it got, and GOAWAY. At GOAWAY it connects to the next
// server and resumes each watch there when the old one has ended.
import http2 from 'node:http2';

const [token, path, resourceVersion, names, ...servers] = process.argv.slice(2);
const objects = names.split(',');
const last = Object.fromEntries(objects.map((name) => [name, resourceVersion]));
let session = connect();
let unanswered = objects.length;

function connect() {
  const server = servers.shift();
  const opened = http2.connect(server, { rejectUnauthorized: false });
  opened.once('goaway', (code) => { // another one follows
    console.log('goaway', code);
    session = connect();
  });
  opened.on('error', (err) => console.log('error', err.message));
  opened.on('close', () => console.log('close'));
  return opened;
}

// request hands each line of an answer to line, and calls ended behind the last one. A line that is
// not complete is lost.
function request(query, line, ended) {
  const stream = session.request({ ':path': path + query, authorization: `Bearer ${token}` });
  let rest = '';
  stream.setEncoding('utf8');
  stream.on('response', (headers) => {
    if (headers[':status'] !== 200) console.log('status', headers[':status'], query);
    if (query.startsWith('?') && --unanswered === 0) console.log('watching');
  });
  stream.on('data', (data) => {
    const lines = (rest + data).split('\n');
    rest = lines.pop();
    lines.forEach(line);
  });
  stream.on('error', (err) => console.log('error', err.message, query));
  stream.on('close', () => {
    if (stream.rstCode !== http2.constants.NGHTTP2_NO_ERROR) console.log('reset', stream.rstCode, query);
    ended();
  });
}

function watch(name) {
  const query = `?watch=1&allowWatchBookmarks=true&fieldSelector=metadata.name%3D${name}&resourceVersion=${last[name]}`;
  request(query, (line) => {
    const { type, object } = JSON.parse(line);
    last[name] = object.metadata.resourceVersion;
    if (type !== 'BOOKMARK') console.log(type, object.metadata.name, last[name]);
  }, () => watch(name));
}

objects.forEach(watch);
objects.forEach((name) => request(`/${name}`, (line) => {
  const { metadata } = JSON.parse(line);
  console.log('got', metadata.name, metadata.resourceVersion);
}, () => {}));
