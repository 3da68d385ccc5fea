// The requests of the bench are those of the official SDK: the recorded header block is what the installed package sends, and the
// bytes on the wire are that block with the bench's own key.
import { expect, test } from 'vitest';
import { recordSdk } from '../../bench/load/record-sdk.ts';
import { requestHead, sdkRequest } from '../../bench/load/sdk-request.ts';
import { requestBody } from '../../bench/load/traffic.ts';

/** Differs from machine to machine. */
const HERE = /^x-stainless-(os|arch|runtime-version)$/;

test('the recorded headers are those of the installed package, in its order, and it sends the body of the bench', async () => {
  const body = requestBody();
  const sent = await recordSdk(body);
  const portable = (headers: readonly (readonly [string, string])[]) =>
    headers.map(([name, value]) => (HERE.test(name) ? name : `${name}: ${value}`));
  expect(sdkRequest().from).toBe(sent.from);
  expect(portable(sdkRequest().headers)).toEqual(portable(sent.headers));
  expect(sent.body).toBe(body.toString());
});

test('values of a subject take the place of those of the SDK, and others come after them', () => {
  const head = requestHead(new URL('http://127.0.0.1:8080/v1/chat/completions'), {
    authorization: 'Bearer key',
    'content-length': '7',
    'x-portkey-provider': 'openai',
  });
  const [first, ...lines] = head.split('\r\n');
  expect(first).toBe('POST /v1/chat/completions HTTP/1.1');
  expect(lines[0]).toBe('host: 127.0.0.1:8080');
  expect(lines.filter((line) => line.startsWith('authorization'))).toEqual(['authorization: Bearer key']);
  expect(lines.slice(-4)).toEqual(['content-length: 7', 'x-portkey-provider: openai', '', '']);
  expect(lines).toHaveLength(sdkRequest().headers.length + 3);
});
