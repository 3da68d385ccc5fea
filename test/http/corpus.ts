// Requests to begin with and ways to spoil them, for the fuzzing of the edge. The same seed gives the same bytes.

/** Small and fast, and the same everywhere (mulberry32). From 0 to 1. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** Whole requests, good and bad, as they would stand on the wire. */
export function corpus(key: string): Buffer[] {
  const auth = `authorization: Bearer ${key}`;
  const json = 'content-type: application/json';
  const chat = '{"model":"test-model","messages":[{"role":"user","content":"hi"}]}';
  const stream = '{"model":"test-model","stream":true,"messages":[{"role":"user","content":"hi"}]}';
  const post = (fields: string[], body: string, target = '/v1/chat/completions') =>
    [`POST ${target} HTTP/1.1`, 'host: a', ...fields, '', body].join('\r\n');
  const sized = (body: string, ...fields: string[]) =>
    post([auth, json, `content-length: ${Buffer.byteLength(body)}`, ...fields], body);
  const get = (target: string, ...fields: string[]) =>
    [`GET ${target} HTTP/1.1`, 'host: a', ...fields, '', ''].join('\r\n');
  const chunked = (body: string) => `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
  return [
    get('/health'),
    get('/health') + get('/v1/models', auth) + get('/nowhere'),
    get('/v1/models', auth),
    get('/v1/models/test-model', auth),
    get('/v1/models/a%2Fb:c', auth),
    get('/pricing'),
    get('/health', 'connection: close'),
    get('/health', 'connection: upgrade', 'upgrade: websocket', 'sec-websocket-version: 13'),
    get('/health', 'transfer-encoding: chunked'),
    `${get('/health', 'content-length: 5')}abcde`,
    get('/health', 'x: 1', ' folded: 2'),
    get('/../../etc/passwd'),
    get('/%2e%2e/%00'),
    get('//health'),
    get('http://a/health'),
    get('http://a@b/health'),
    get('*'),
    'GET /health HTTP/1.0\r\n\r\n',
    'GET /health HTTP/2.0\r\nhost: a\r\n\r\n',
    'GET /health\r\n\r\n',
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    'OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: a\r\norigin: https://a\r\naccess-control-request-method: POST\r\n\r\n',
    'PUT /health HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc',
    'CONNECT a:443 HTTP/1.1\r\nhost: a\r\n\r\n',
    'TRACE / HTTP/1.1\r\nhost: a\r\n\r\n',
    '\x16\x03\x01\x00\xf1\x01\x00\x00\xed\x03\x03',
    sized(chat),
    sized(stream),
    sized(chat) + sized(stream) + get('/health'),
    sized(chat, 'expect: 100-continue'),
    sized(chat, 'content-encoding: gzip'),
    sized('{"model":"test-model","model":"x","messages":[]}'),
    sized('{"model":"test-model"'),
    sized('[]'),
    sized(`${'['.repeat(2_000)}`),
    post([auth, json, 'transfer-encoding: chunked'], chunked(chat)),
    post([auth, json, 'transfer-encoding: chunked'], `5;a="b"\r\n{"mod\r\n${chunked(chat.slice(5))}`),
    post([auth, json, 'transfer-encoding: chunked'], `${chunked(chat).slice(0, -2)}trailer: 1\r\n\r\n`),
    post([auth, json, 'content-length: 5', 'transfer-encoding: chunked'], chunked(chat)),
    post([auth, json, 'content-length: 5', 'content-length: 6'], chat),
    post([auth, json, 'content-length: 99999999999'], chat),
    post([json, 'authorization: Bearer 00000000000000000000000000000000', 'content-length: 2'], '{}'),
    post([json, 'content-length: 2'], '{}'),
    post(['content-type: application/x-www-form-urlencoded', 'content-length: 9'], 'tier=Free', '/checkout'),
    post([auth, 'content-length: 0'], '', '/v1/nothing'),
    get('/health', ...Array.from({ length: 120 }, (_, i) => `x-${i}: ${i}`)),
    get('/health', `x: ${'y'.repeat(17_000)}`),
    get(`/health?${'z'.repeat(9_000)}`),
  ].map((text) => Buffer.from(text, 'latin1'));
}

/** What mistakes and attacks are made of. */
const PARTS = [
  '\r\n',
  '\n',
  '\r',
  '\0',
  ' ',
  '\t',
  ':',
  '\xff',
  '\r\n\r\n',
  '\r\n ',
  'Transfer-Encoding: chunked\r\n',
  'transfer-encoding: identity\r\n',
  'Content-Length: 0\r\n',
  'content-length: 7\r\n',
  'content-length: -1\r\n',
  'Host: b\r\n',
  'Expect: 100-continue\r\n',
  'expect: x\r\n',
  'connection: close\r\n',
  'connection: upgrade\r\nupgrade: h2c\r\n',
  'content-encoding: gzip\r\n',
  'authorization: Bearer x\r\n',
  'x_y: 1\r\n',
  '0\r\n\r\n',
  'ffffffffff\r\n',
  '5\r\nabcde\r\n',
  'GET /health HTTP/1.1\r\nhost: a\r\n\r\n',
  'HTTP/1.1 200 OK\r\n\r\n',
  'A'.repeat(300),
  '%00',
  '%2f',
  '#',
  '\\',
].map((part) => Buffer.from(part, 'latin1'));

/** One spoiling of one request, sometimes up to four, with pieces of others. */
export function spoil(requests: readonly Buffer[], random: () => number): Buffer {
  const below = (limit: number) => Math.floor(random() * limit);
  const pick = <T>(list: readonly T[], other: T): T => list[below(list.length)] ?? other;
  const empty = Buffer.alloc(0);
  let bytes = Buffer.from(pick(requests, empty));
  for (let left = random() < 0.6 ? 1 : 1 + below(4); left > 0; left -= 1) {
    const at = below(bytes.length + 1);
    const until = Math.min(bytes.length, at + 1 + below(12));
    const [before, middle, after] = [bytes.subarray(0, at), bytes.subarray(at, until), bytes.subarray(until)];
    switch (below(9)) {
      case 0: {
        if (at < bytes.length) bytes[at] = (bytes[at] ?? 0) ^ (1 << below(8));
        break;
      }
      case 1:
        bytes = Buffer.concat([before, Buffer.of(below(256)), middle, after]);
        break;
      case 2:
        bytes = Buffer.concat([before, after]);
        break;
      case 3:
        bytes = Buffer.concat([before, middle, middle, after]);
        break;
      case 4:
        bytes = Buffer.from(before);
        break;
      case 5: {
        const other = pick(requests, empty);
        bytes = Buffer.concat([before, other.subarray(below(other.length + 1))]);
        break;
      }
      case 6:
      case 7:
        bytes = Buffer.concat([before, pick(PARTS, empty), middle, after]);
        break;
      default: {
        // At a line, where it becomes a field.
        const line = bytes.indexOf('\r\n', at);
        const place = line === -1 ? at : line + 2;
        bytes = Buffer.concat([bytes.subarray(0, place), pick(PARTS, empty), bytes.subarray(place)]);
      }
    }
  }
  return bytes;
}
