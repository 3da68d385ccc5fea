// Records the header block that the installed `openai` package sends: `node bench/load/record-sdk.ts`, after an update of it.
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import OpenAI from 'openai';
import { z } from 'zod';
import type { Recorded } from './sdk-request.ts';
import { requestBody } from './traffic.ts';

const PACKAGE = new URL('../../node_modules/openai/package.json', import.meta.url);
/** Differ from request to request. */
const OPEN = new Set(['host', 'authorization', 'content-length']);

/** One request of the package, and the bytes of its body. */
export async function recordSdk(body = requestBody()): Promise<Recorded & { readonly body: string }> {
  const heard = Promise.withResolvers<string>();
  const server = createServer((socket) => {
    let text = '';
    socket.setEncoding('latin1').on('data', (piece: string) => {
      text += piece;
      const [head = '', sent] = text.split('\r\n\r\n');
      if (sent === undefined || sent.length < Number(/content-length: (\d+)/.exec(head)?.[1])) return;
      heard.resolve(text);
      socket.end(
        'HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}',
      );
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;
  const client = new OpenAI({ apiKey: 'none', baseURL: `http://127.0.0.1:${port}/v1`, maxRetries: 0 });
  // As `chat.completions.create` does, without a look at the parameters.
  await client.post('/chat/completions', { body: JSON.parse(body.toString()) });
  server.close();
  const [head = '', sent = ''] = (await heard.promise).split('\r\n\r\n');
  const headers = head
    .split('\r\n')
    .slice(1)
    .map((line): [string, string] => {
      const [, name = '', value = ''] = /^([^:]+): (.*)$/.exec(line) ?? [];
      return [name, OPEN.has(name) ? '' : value];
    });
  const { version } = z.object({ version: z.string() }).parse(JSON.parse(readFileSync(PACKAGE, 'utf8')));
  return { from: `openai ${version}`, headers, body: sent };
}

if (import.meta.main) {
  const { from, headers } = await recordSdk();
  writeFileSync(
    new URL('./sdk-request.json', import.meta.url),
    `${JSON.stringify({ from, headers }, null, 2)}\n`,
  );
}
