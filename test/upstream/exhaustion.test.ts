// No open files are left: that is trouble of this process, and no upstream is blamed for it.
import { expect, test } from 'vitest';
import type { GatewayError } from '../../src/errors.ts';
import { blameFor } from '../../src/upstream/error-outcome.ts';
import { HttpTransport } from '../../src/upstream/http/http-transport.ts';

test.each(['EMFILE', 'ENFILE', 'ENOBUFS'])(
  '%s is a busy gateway, not an upstream that fails',
  async (code) => {
    const transport = new HttpTransport({
      origin: 'http://name.test',
      connectTimeout: 5_000,
      connections: 1,
      lookup: (_name, _options, callback) => callback(Object.assign(new Error(code), { code }), ''),
    });
    const { promise, resolve } = Promise.withResolvers<GatewayError>();
    const sink = { onHead: () => {}, onData: () => {}, onEnd: () => {}, onError: resolve };
    transport.send({ path: '/', headers: {}, body: Buffer.from('{}') }, sink);
    const error = await promise;
    expect([error.code, error.status, error.retry]).toEqual(['upstream_busy', 503, 'wait']);
    expect(blameFor(error.code).kind).toBe('neutral');
    await transport.close();
  },
);
