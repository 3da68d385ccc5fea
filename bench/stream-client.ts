// The streaming load of the proxy bench, a process of its own: many streams at once, every byte compared with what it must
// be. It prints one line of JSON and exits 1 if a stream was not exactly right. It measures no one's CPU time.
import http from 'node:http';
import { FRAMES, requestBody, streamFrames } from './traffic.ts';

const [url = '', key = '', model = '', concurrency = '1', times = '1'] = process.argv.slice(2);
const expected = Buffer.concat(streamFrames(model));
const body = requestBody(true);
const agent = new http.Agent({ keepAlive: true, maxSockets: Number(concurrency) });
/** A stream that stands still this long has failed. */
const IDLE_MS = 10_000;

let pieces = 0;
let bytes = 0;

function stream(): Promise<void> {
  return new Promise((resolve, reject) => {
    const headers = {
      'content-type': 'application/json',
      'content-length': body.length,
      authorization: `Bearer ${key}`,
    };
    const request = http.request(url, { method: 'POST', agent, headers, timeout: IDLE_MS }, (response) => {
      let at = 0;
      response.on('data', (data: Buffer) => {
        pieces += 1;
        bytes += data.length;
        if (!data.equals(expected.subarray(at, at + data.length))) {
          request.destroy(
            new Error(`the stream differs from what was sent, between bytes ${at} and ${at + data.length}`),
          );
        }
        at += data.length;
      });
      response.once('error', reject);
      response.once('end', () => {
        if (response.statusCode !== 200) reject(new Error(`status ${response.statusCode}`));
        else if (at !== expected.length) reject(new Error(`${at} of ${expected.length} bytes`));
        else resolve();
      });
    });
    request.once('timeout', () => request.destroy(new Error(`nothing came for ${IDLE_MS} ms`)));
    request.once('error', reject);
    request.end(body);
  });
}

async function streams(): Promise<void> {
  for (let i = 0; i < Number(times); i++) await stream();
}

process.stdin.resume().once('end', () => process.exit(1));
try {
  await Promise.all(Array.from({ length: Number(concurrency) }, streams));
  const total = Number(concurrency) * Number(times);
  console.log(JSON.stringify({ streams: total, chunks: total * FRAMES, pieces, bytes }));
  process.exit(0);
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exit(1);
}
