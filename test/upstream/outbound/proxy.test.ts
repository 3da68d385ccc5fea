// Upstreams behind an HTTP proxy: what reaches the proxy and the upstream, and what is said when the proxy does not do as it should.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { makeCertificate } from '../../helpers/certificate.ts';
import { ConnectProxy } from '../../helpers/connect-proxy.ts';
import { type Gateway, type GatewayOptions, startGateway } from '../../helpers/gateway.ts';
import { chatRequest, completion, HostileUpstream, json } from '../../helpers/hostile-upstream.ts';

const certificate = makeCertificate({ names: ['upstream.test', 'localhost', '127.0.0.1'] });
let proxy: ConnectProxy;
let upstream: HostileUpstream;
let secure: HostileUpstream;

beforeEach(async () => {
  proxy = await ConnectProxy.start();
  upstream = await HostileUpstream.start({ script: json(200, completion()) });
  secure = await HostileUpstream.start({ tls: certificate, script: json(200, completion()) });
});
afterEach(async () => {
  await Promise.all([upstream.close(), secure.close(), proxy.down()]);
});

type Fields = NonNullable<GatewayOptions['config']>;

/** A gateway whose one upstream has a name that only the proxy can resolve. */
function start(fields: Fields, { port } = upstream, more: GatewayOptions = {}): Promise<Gateway> {
  const scheme = port === secure.port ? 'https' : 'http';
  return startGateway({
    upstreams: { up: `${scheme}://upstream.test:${port}/v1` },
    ...more,
    config: { ...more.config, upstreams: { up: { proxy: proxy.url(), ...fields } } },
  });
}

describe('a request through a proxy', () => {
  test.each(['http', 'https'] as const)(
    'reaches an %s upstream whose name the proxy resolves',
    async (scheme) => {
      const target = scheme === 'http' ? upstream : secure;
      await using gateway = await start(scheme === 'http' ? {} : { tls: { ca: certificate.cert } }, target);
      const responses = await Promise.all([1, 2, 3].map(() => gateway.chat(chatRequest())));
      expect(responses.map(({ status }) => status)).toEqual([200, 200, 200]);
      const authority = `upstream.test:${target.port}`;
      expect(proxy.requests[0]?.head).toBe(`CONNECT ${authority} HTTP/1.1\r\nhost: ${authority}\r\n\r\n`);
      expect((await target.request(0)).header('host')).toBe(authority);
      expect((await target.request(0)).header('authorization')).toBe('Bearer credential-of-up');
      const tunnels = proxy.requests.length;
      expect((await gateway.chat(chatRequest())).status).toBe(200);
      expect(proxy.requests.length).toBe(tunnels);
    },
  );
});
