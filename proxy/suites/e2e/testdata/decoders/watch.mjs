// Prints each line of a gzip watch as soon as it has come. Node's decoder fails unless the body is whole and nothing but gzip is behind it.
import http from 'node:http';
import zlib from 'node:zlib';
import { pipeline } from 'node:stream/promises';

http.get(process.argv[2], { headers: { 'Accept-Encoding': 'gzip' } }, async (response) => {
  await pipeline(response, zlib.createGunzip(), process.stdout);
});
